"""A project of somebody who uses the platform: checked with its types as installed, never run."""
