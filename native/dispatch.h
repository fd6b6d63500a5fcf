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

// A kernel as the pool runs it. `serial` kernels do all their work on the first worker.
struct KernelEntry {
  KernelFunction function;
  bool serial;
};

using KernelTable = std::array<KernelEntry, kKernelCount>;

// Throws std::invalid_argument for a set that this machine or build doesn't have.
const KernelTable& kernel_table(std::string_view instruction_set);

}  // namespace helios
