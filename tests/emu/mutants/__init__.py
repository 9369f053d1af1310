"""Mutants: kernels with one synchronisation taken away or weakened, which the emulator has to object to."""
