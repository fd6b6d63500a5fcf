// What a kernel is given: a launch's operands and attributes, and which piece of it to compute.
// A launch is cut into `Piece::count` pieces, each a call of the same function with its own
// `Piece::index`; pieces run in any order, on any thread. Nothing here owns memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "inlining.h"

namespace helios {

struct Launch {
  const std::uint64_t* addresses;  // one an operand, 0 where absent
  const std::uint64_t* nbytes;
  const std::int64_t* integers;
  const double* floats;

  template <class T>
  HELIOS_INLINE const T* read(int operand) const {
    return reinterpret_cast<const T*>(addresses[operand]);
  }
  template <class T>
  HELIOS_INLINE T* write(int operand) const {
    return reinterpret_cast<T*>(addresses[operand]);
  }
  HELIOS_INLINE std::int64_t integer(int attribute) const { return integers[attribute]; }
  HELIOS_INLINE float real(int attribute) const { return static_cast<float>(floats[attribute]); }

  // Live rows: operand 0 of every kernel, clamped to `capacity`, attribute 0 of every kernel.
  HELIOS_INLINE std::int64_t rows() const {
    const std::int64_t live = *read<std::int32_t>(0);
    return live < 0 ? 0 : live < integers[0] ? live : integers[0];
  }
};

struct Range {
  std::int64_t begin;
  std::int64_t end;
};

struct Piece {
  int index;
  int count;
  std::byte* scratch;  // 64-byte aligned, at least what the launch's check asked for

  // This piece's contiguous share of `items`.
  HELIOS_INLINE Range share(std::int64_t items) const {
    return {items * index / count, items * (index + 1) / count};
  }
};

using KernelFunction = void (*)(const Launch&, const Piece&);

}  // namespace helios
