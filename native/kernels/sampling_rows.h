// What the kernels that process logits keep for a slot beside its state row: finds the rows of
// each buffer, and says which of them the slot's request uses.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "../launch.h"
#include "../layouts.h"

namespace helios {

// Rows of `elements` elements of a slot each in one operand; null where the slot is out of range.
template <class T>
T* row_of_slot(const Launch& launch, int operand, std::int64_t elements, std::int32_t slot) {
  const auto slots = static_cast<std::int64_t>(
      launch.nbytes[operand] / (sizeof(T) * static_cast<std::uint64_t>(elements)));
  return slot >= 0 && slot < slots ? launch.write<T>(operand) + slot * elements : nullptr;
}

// 0 is off, as 1 is: rows from before there were penalties hold it.
inline float repetition_of(const RequestState& state) {
  return state.repetition_penalty == 0.0f ? 1.0f : state.repetition_penalty;
}

inline bool counts_tokens(const RequestState& state) {
  return repetition_of(state) != 1.0f || state.presence_penalty != 0.0f ||
         state.frequency_penalty != 0.0f;
}

// A count in a row, whatever the bytes there are.
inline std::int64_t used(std::int32_t count, std::int64_t capacity) {
  return std::clamp<std::int64_t>(count, 0, capacity);
}

}  // namespace helios
