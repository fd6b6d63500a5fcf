// A program: checked launches as flat arrays, ready to be walked.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "dispatch.h"

namespace helios {

// A launch list as it arrives: CSR arrays, one entry of each `starts` a launch plus the end.
struct LaunchList {
  std::span<const std::int32_t> kernels;
  std::span<const std::int32_t> operand_starts;
  std::span<const std::uint64_t> addresses;
  std::span<const std::uint64_t> nbytes;
  std::span<const std::int32_t> integer_starts;
  std::span<const std::int64_t> integers;
  std::span<const std::int32_t> float_starts;
  std::span<const double> floats;
};

class Program {
 public:
  // Copies and checks the list; throws std::invalid_argument where something doesn't fit.
  Program(const LaunchList& list, const KernelTable& table, int workers);

  std::size_t size() const { return kernels_.size(); }
  const KernelEntry& kernel(std::size_t i) const { return kernels_[i]; }
  // Pieces that launch i is cut into.
  std::uint32_t pieces(std::size_t i) const { return pieces_[i]; }
  Launch launch(std::size_t i) const {
    return {addresses_.data() + operand_starts_[i], nbytes_.data() + operand_starts_[i],
            integers_.data() + integer_starts_[i], floats_.data() + float_starts_[i]};
  }
  std::uint64_t scratch_nbytes() const { return scratch_nbytes_; }

 private:
  std::vector<KernelEntry> kernels_;
  std::vector<std::uint32_t> pieces_;
  std::vector<std::int32_t> operand_starts_;
  std::vector<std::uint64_t> addresses_;
  std::vector<std::uint64_t> nbytes_;
  std::vector<std::int32_t> integer_starts_;
  std::vector<std::int64_t> integers_;
  std::vector<std::int32_t> float_starts_;
  std::vector<double> floats_;
  std::uint64_t scratch_nbytes_ = 0;
};

}  // namespace helios
