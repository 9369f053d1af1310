"""Runs generated kernels on the CPU, and objects to their races, missing waits and deadlocks."""
