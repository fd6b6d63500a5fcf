// HELIOS_INLINE: for every function that files of different instruction sets share. Such a
// function must never be emitted out of line, or the linker could keep the copy that only the
// widest instruction set can run.
#pragma once

#define HELIOS_INLINE inline __attribute__((always_inline))

// Before a loop of few rounds over an array that is to live in registers: unrolled so early that
// the compiler can keep its elements there from the first one on.
#define HELIOS_UNROLL _Pragma("GCC unroll 16")
