"""Tasks that come with an installed package: the folder holds such a package, and a flow that uses it by name."""
