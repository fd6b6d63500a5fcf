// Load-time checks: every operand must be present, aligned, and as large as the launch's
// attributes say that its kernel touches. A launch that passed can't make its kernel reach outside
// its operands, whatever the data in them.
#pragma once

#include <cstdint>

#include "catalogue.h"
#include "launch.h"

namespace helios {

// Scratch that a launch may ask for, a worker: a vocabulary of four million samples in half of it.
inline constexpr std::uint64_t kScratchLimitNbytes = std::uint64_t{128} << 20;

// Throws std::invalid_argument naming the launch, the kernel and the operand or attribute.
// Returns the bytes of scratch that each worker needs for the launch, at most the limit.
std::uint64_t check_launch(std::int64_t index, KernelId kernel, const Launch& launch);

}  // namespace helios
