// What the checks of launches are written with: attributes within bounds, operands that are
// present, aligned and large enough. A refusal throws std::invalid_argument naming the launch.
#pragma once

#include <cstdint>
#include <string>

#include "catalogue.h"
#include "launch.h"
#include "layouts.h"

namespace helios {

// Sizes in bytes that saturate instead of wrapping.
__extension__ typedef unsigned __int128 Wide;

class LaunchChecker {
 public:
  // Every launch has a row count as operand 0 and their capacity as attribute 0.
  LaunchChecker(std::int64_t index, KernelId kernel, const Launch& launch);

  // An attribute that counts something: `low` to 2^31 - 1.
  std::int64_t count(int attribute, std::int64_t low = 1) const;
  std::int64_t choice(int attribute, std::int64_t low, std::int64_t high) const;
  std::int64_t multiple(int attribute, std::int64_t of) const;
  Format format(int attribute, int width_attribute) const;
  Packing packing(int attribute, int width_attribute) const;
  // The format that a packing's products take.
  void activation_fits(int attribute, Packing packing) const;

  // `elements` elements of `size` bytes, aligned to `size`.
  void require(int operand, Wide elements, int size) const;
  void activation(int operand, std::int64_t rows, Format format, std::int64_t width) const;
  void weight(int operand, Packing packing, std::int64_t outputs, std::int64_t width) const;

  // The bytes of scratch that a worker needs, within the limit.
  std::uint64_t scratch(std::uint64_t nbytes) const;

  [[noreturn]] void refuse(int attribute, const std::string& why) const;

 private:
  bool present(int operand) const { return launch_.addresses[operand] != 0; }
  void require_nbytes(int operand, Wide needed, int alignment) const;
  std::string quoted(int operand) const;
  [[noreturn]] void fail(const std::string& what) const;

  std::int64_t index_;
  const KernelSpec& spec_;
  const Launch& launch_;
};

}  // namespace helios
