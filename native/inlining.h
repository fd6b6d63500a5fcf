// HELIOS_INLINE: for every function that files of different instruction sets share. Such a
// function must never be emitted out of line, or the linker could keep the copy that only the
// widest instruction set can run.
#pragma once

#define HELIOS_INLINE inline __attribute__((always_inline))
#define HELIOS_NOINLINE __attribute__((noinline))
