#include "launch_checker.h"

#include <limits>
#include <stdexcept>
#include <string_view>

#include "extents.h"

namespace helios {

LaunchChecker::LaunchChecker(std::int64_t index, KernelId kernel, const Launch& launch)
    : index_(index), spec_(catalogue()[static_cast<std::size_t>(kernel)]), launch_(launch) {
  require(0, 1, 4);
  count(0);
}

std::int64_t LaunchChecker::count(int attribute, std::int64_t low) const {
  const std::int64_t value = launch_.integer(attribute);
  if (value < low || value > std::numeric_limits<std::int32_t>::max()) {
    refuse(attribute, "must lie between " + std::to_string(low) + " and 2147483647");
  }
  return value;
}

std::int64_t LaunchChecker::choice(int attribute, std::int64_t low, std::int64_t high) const {
  const std::int64_t value = launch_.integer(attribute);
  if (value < low || value > high) {
    refuse(attribute,
           "must lie between " + std::to_string(low) + " and " + std::to_string(high));
  }
  return value;
}

std::int64_t LaunchChecker::multiple(int attribute, std::int64_t of) const {
  const std::int64_t value = count(attribute);
  if (value % of != 0) refuse(attribute, "must be a multiple of " + std::to_string(of));
  return value;
}

Format LaunchChecker::format(int attribute, int width_attribute) const {
  const auto value = static_cast<Format>(choice(attribute, 0, 4));
  multiple(width_attribute, width_multiple(value));
  return value;
}

Packing LaunchChecker::packing(int attribute, int width_attribute) const {
  const auto value = static_cast<Packing>(choice(attribute, 2, 9));
  multiple(width_attribute, width_multiple(value));
  return value;
}

void LaunchChecker::require(int operand, Wide elements, int size) const {
  if (!present(operand)) {
    const std::string_view name = spec_.operands[operand];
    if (name.ends_with('?')) return;
    fail("operand \"" + std::string(name) + "\" is absent but needed");
  }
  require_nbytes(operand, elements * static_cast<unsigned>(size), size);
}

void LaunchChecker::require_nbytes(int operand, Wide needed, int alignment) const {
  if (needed > launch_.nbytes[operand]) {
    const auto most = std::numeric_limits<std::uint64_t>::max();
    const auto shown = needed > most ? most : static_cast<std::uint64_t>(needed);
    fail("operand " + quoted(operand) + " needs " + std::to_string(shown) + " bytes, " +
         std::to_string(launch_.nbytes[operand]) + " given");
  }
  if (launch_.addresses[operand] % static_cast<unsigned>(alignment) != 0) {
    fail("operand " + quoted(operand) + " must be aligned to " + std::to_string(alignment) +
         " bytes");
  }
}

void LaunchChecker::activation(int operand, std::int64_t rows, Format format,
                               std::int64_t width) const {
  if (!present(operand)) require(operand, 1, 4);
  require_nbytes(operand, Wide(rows) * static_cast<Wide>(row_nbytes(format, width)),
                 format == Format::kBf16 ? 2 : 4);
}

void LaunchChecker::weight(int operand, Packing packing, std::int64_t outputs,
                           std::int64_t width) const {
  if (!present(operand)) require(operand, 1, 4);
  const Wide tiles = static_cast<Wide>(ceil_divide(outputs, kTileOutputs));
  require_nbytes(operand, tiles * static_cast<Wide>(tile_nbytes(packing, width)),
                 packing == Packing::kTile16F32 || packing == Packing::kTile16Q4Pairs ? 4 : 2);
}

void LaunchChecker::activation_fits(int attribute, Packing packing) const {
  const auto format = static_cast<Format>(launch_.integer(attribute));
  const bool pairs = packing == Packing::kTile16Q4Pairs;
  const bool fits = pairs || format == Format::kQ8Pairs ? pairs && format == Format::kQ8Pairs
                    : is_quantised(packing)             ? is_quantised(format)
                    : packing == Packing::kTile16Bf16   ? !is_quantised(format)
                                                        : format == Format::kF32;
  if (!fits) refuse(attribute, "doesn't go with the packing");
}

std::uint64_t LaunchChecker::scratch(std::uint64_t nbytes) const {
  if (nbytes > kScratchLimitNbytes) {
    fail("needs " + std::to_string(nbytes) + " bytes of scratch a worker, the limit is " +
         std::to_string(kScratchLimitNbytes));
  }
  return nbytes;
}

void LaunchChecker::refuse(int attribute, const std::string& why) const {
  fail("attribute \"" + std::string(spec_.integers[attribute]) + "\" is " +
       std::to_string(launch_.integer(attribute)) + ", " + why);
}

std::string LaunchChecker::quoted(int operand) const {
  return "\"" + std::string(spec_.operands[operand]) + "\"";
}

void LaunchChecker::fail(const std::string& what) const {
  throw std::invalid_argument("launch " + std::to_string(index_) + " (" + spec_.name +
                              "): " + what);
}

}  // namespace helios
