// Chooses, at run time, the kernels of one instruction set.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "catalogue.h"
#include "launch.h"

namespace helios {

// What this machine can run, widest first.
std::vector<std::string> instruction_sets();

// How a launch is cut into pieces.
enum class Cut : std::uint8_t {
  kNone,      // one piece: the kernel does all its work in it
  kEven,      // one a worker
  kFine,      // two a worker: items of uneven cost
  kByWeight,  // by the bytes of the weight operand
};

// A kernel as the pool runs it.
struct KernelEntry {
  KernelFunction function;
  Cut cut;
};

using KernelTable = std::array<KernelEntry, kKernelCount>;

// Throws std::invalid_argument for a set that this machine or build doesn't have.
const KernelTable& kernel_table(std::string_view instruction_set);

}  // namespace helios
