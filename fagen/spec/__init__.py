"""The spec: what is wanted and how to run it, from YAML to a checked, frozen value."""
