// Structure checks of a launch list; what each kernel needs of its operands is in extents.cpp.
#include "program.h"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "catalogue.h"
#include "extents.h"

namespace helios {
namespace {

template <class T>
std::vector<T> copy(std::span<const T> values) {
  return {values.begin(), values.end()};
}

void check_starts(const char* name, std::span<const std::int32_t> starts, std::size_t launches,
                  std::size_t values) {
  const bool fits = starts.size() == launches + 1 && starts.front() == 0 &&
                    std::is_sorted(starts.begin(), starts.end()) &&
                    static_cast<std::size_t>(starts.back()) == values;
  if (!fits) {
    throw std::invalid_argument(std::string(name) + " must ascend from 0 to " +
                                std::to_string(values) + " in " +
                                std::to_string(launches + 1) + " entries");
  }
}

void check_count(std::size_t launch, const KernelSpec& spec, const char* what,
                 std::span<const std::int32_t> starts, std::size_t expected) {
  const std::int32_t given = starts[launch + 1] - starts[launch];
  if (static_cast<std::size_t>(given) != expected) {
    throw std::invalid_argument("launch " + std::to_string(launch) + " (" + spec.name +
                                "): " + std::to_string(expected) + " " + what + " expected, " +
                                std::to_string(given) + " given");
  }
}

// Whole rounds of the workers, so that equal pieces leave nobody idle at the end. A piece is worth
// its two atomic counts, which can cost a microsecond, from about this many bytes of weights.
constexpr std::uint64_t kPieceWeightNbytes = 64 * 1024;
constexpr std::uint32_t kMaximumRounds = 8;

std::uint32_t pieces_of(Cut cut, const Launch& launch, int workers) {
  const auto count = static_cast<std::uint32_t>(workers);
  if (cut == Cut::kNone || workers == 1) return 1;
  if (cut == Cut::kEven) return count;
  if (cut == Cut::kFine) return 2 * count;
  static_assert(int{linear::kWeight} == int{linear_silu_mul::kWeight});
  static_assert(int{linear::kWeight} == int{linear_tuned::kWeight});
  static_assert(int{linear::kWeight} == int{linear_silu_mul_tuned::kWeight});
  const std::uint64_t rounds = launch.nbytes[linear::kWeight] / (kPieceWeightNbytes * count);
  return count * static_cast<std::uint32_t>(
                     std::clamp<std::uint64_t>(rounds, 1, kMaximumRounds));
}

}  // namespace

Program::Program(const LaunchList& list, const KernelTable& table, int workers)
    : operand_starts_(copy(list.operand_starts)),
      addresses_(copy(list.addresses)),
      nbytes_(copy(list.nbytes)),
      integer_starts_(copy(list.integer_starts)),
      integers_(copy(list.integers)),
      float_starts_(copy(list.float_starts)),
      floats_(copy(list.floats)) {
  const std::size_t launches = list.kernels.size();
  check_starts("operand_starts", operand_starts_, launches, addresses_.size());
  check_starts("integer_starts", integer_starts_, launches, integers_.size());
  check_starts("float_starts", float_starts_, launches, floats_.size());
  if (nbytes_.size() != addresses_.size()) {
    throw std::invalid_argument("nbytes must have as many entries as addresses");
  }
  kernels_.reserve(launches);
  for (std::size_t i = 0; i < launches; ++i) {
    const std::int32_t id = list.kernels[i];
    if (id < 0 || id >= kKernelCount) {
      throw std::invalid_argument("launch " + std::to_string(i) + ": kernel " +
                                  std::to_string(id) + " isn't in the catalogue");
    }
    const KernelSpec& spec = catalogue()[static_cast<std::size_t>(id)];
    check_count(i, spec, "operands", operand_starts_, spec.operands.size());
    check_count(i, spec, "integers", integer_starts_, spec.integers.size());
    check_count(i, spec, "floats", float_starts_, spec.floats.size());
    kernels_.push_back(table[static_cast<std::size_t>(id)]);
    pieces_.push_back(pieces_of(kernels_.back().cut, launch(i), workers));
    scratch_nbytes_ = std::max(
        scratch_nbytes_,
        check_launch(static_cast<std::int64_t>(i), static_cast<KernelId>(id), launch(i)));
  }
}

}  // namespace helios
