// Measures the blockings of a projection on its own weights and picks one: what the `tune_*` kernels
// do once, before anything serves. Only a blocking whose output has the default's bytes can be
// picked, whatever tile_products.h promises; so a choice can change the speed and nothing else.
#pragma once

#include <chrono>
#include <cstring>

#include "tile_driver.h"

namespace helios::HELIOS_ISA {

inline constexpr int kTimedRounds = 5;
// Tiles that a timed run covers: enough to leave the caches of a core, little enough for large
// matrices to be tuned in a moment.
inline constexpr std::int64_t kTimedTiles = 64;
// Another blocking than the default must be so much faster.
inline constexpr double kLeastGain = 0.97;

// Some activations in `format`, the same ones each time.
inline void fill_activations(Format format, std::byte* out, std::int64_t rows,
                             std::int64_t width) {
  const std::int64_t nbytes = row_nbytes(format, width);
  for (std::int64_t r = 0; r < rows; ++r) {
    std::byte* row = out + r * nbytes;
    const auto code = [r](std::int64_t k) {
      return static_cast<std::int32_t>((37 * k + 11 * r) % 255) - 127;
    };
    if (format == Format::kF32) {
      for (std::int64_t k = 0; k < width; ++k) {
        reinterpret_cast<float*>(row)[k] = static_cast<float>(code(k)) / 128.0f;
      }
    } else if (format == Format::kBf16) {
      for (std::int64_t k = 0; k < width; ++k) {
        const float value = static_cast<float>(code(k)) / 128.0f;
        std::uint32_t bits;
        std::memcpy(&bits, &value, sizeof bits);
        reinterpret_cast<std::uint16_t*>(row)[k] = static_cast<std::uint16_t>(bits >> 16);
      }
    } else if (format == Format::kQ8Pairs) {
      for (std::int64_t k = 0; k < width; ++k) {
        reinterpret_cast<std::int8_t*>(row)[k] = static_cast<std::int8_t>(code(k));
      }
      const std::int64_t pairs = width / kPair;
      auto* scales = reinterpret_cast<float*>(row + width);
      auto* integers = reinterpret_cast<std::int16_t*>(scales + pairs);
      for (std::int64_t p = 0; p < pairs; ++p) scales[p] = 0.0078125f;
      for (std::int64_t b = 0; b < 2 * pairs; ++b) {
        integers[b] = 32767;
        integers[2 * pairs + b] = 64;
        reinterpret_cast<std::int32_t*>(integers + 4 * pairs)[b] = -512;
      }
    } else {
      const std::int64_t planes = format == Format::kQ8 ? 1 : 2;
      for (std::int64_t k = 0; k < planes * width; ++k) {
        reinterpret_cast<std::int8_t*>(row)[k] = static_cast<std::int8_t>(code(k));
      }
      auto* scales = reinterpret_cast<float*>(row + planes * width);
      for (std::int64_t b = 0; b < width / kBlock; ++b) {
        scales[b] = 0.0078125f;
        scales[width / kBlock + b] = 0.5f;
      }
    }
  }
}

// Tells outputs apart, eight bytes at a time.
inline std::uint64_t digest(const std::byte* bytes, std::int64_t count) {
  std::uint64_t state = 1469598103934665603u;
  for (std::int64_t i = 0; i < count; i += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes + i, static_cast<std::size_t>(count - i < 8 ? count - i : 8));
    state = (state ^ word) * 1099511628211u;
    state ^= state >> 29;
  }
  return state;
}

// The fastest blocking. `run(choice, piece)` computes a piece of the output by a blocking; `out` has
// `nbytes` bytes.
template <class Run>
std::int32_t fastest_blocking(std::int64_t tiles, const std::byte* out, std::int64_t nbytes,
                              const Run& run) {
  const int pieces = static_cast<int>(tiles > kTimedTiles ? tiles / kTimedTiles : 1);
  const auto piece = [pieces](int index) { return Piece{index % pieces, pieces, nullptr}; };
  // Pieces of other blockings may end a little later than the default's, so that has one more. One
  // whose pieces are elsewhere altogether (panels of few rows, where the default divides many rows of
  // few weights by rows) counts as unequal.
  run(0, piece(0));
  if (pieces > 1) run(0, piece(1));
  const std::uint64_t expected = digest(out, nbytes);
  bool equal[kBlockings] = {true};
  for (std::int32_t choice = 1; choice < kBlockings; ++choice) {
    run(choice, piece(0));
    equal[choice] = digest(out, nbytes) == expected;
  }
  std::chrono::steady_clock::duration best[kBlockings];
  for (auto& duration : best) duration = std::chrono::steady_clock::duration::max();
  int next = 0;  // each run takes other weights than the one before it, so that none finds them warm
  for (int round = 0; round < kTimedRounds; ++round) {
    for (std::int32_t choice = 0; choice < kBlockings; ++choice) {
      if (!equal[choice]) continue;
      const Piece share = piece(next++);
      const auto start = std::chrono::steady_clock::now();
      run(choice, share);
      const auto duration = std::chrono::steady_clock::now() - start;
      if (duration < best[choice]) best[choice] = duration;
    }
  }
  std::int32_t fastest = 0;
  for (std::int32_t choice = 1; choice < kBlockings; ++choice) {
    const double bound = static_cast<double>(best[fastest].count()) *
                         (fastest == 0 ? kLeastGain : 1.0);
    if (equal[choice] && static_cast<double>(best[choice].count()) < bound) fastest = choice;
  }
  return fastest;
}

}  // namespace helios::HELIOS_ISA
