"""Building blocks of the stores: names, streams, buckets, objects, consumers, pulls."""
