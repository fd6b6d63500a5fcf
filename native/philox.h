// Philox4x32-10 as sampling uses it: stateless random numbers keyed by (seed, position, purpose),
// so that a replay draws the same number and no generator state has to be saved.
#pragma once

#include <array>
#include <cstdint>

namespace helios {

using PhiloxWords = std::array<std::uint32_t, 4>;

constexpr PhiloxWords philox4x32_10(PhiloxWords counter, std::uint32_t key0, std::uint32_t key1) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t product0 = std::uint64_t{0xD2511F53} * counter[0];
    const std::uint64_t product1 = std::uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<std::uint32_t>(product1 >> 32) ^ counter[1] ^ key0,
               static_cast<std::uint32_t>(product1),
               static_cast<std::uint32_t>(product0 >> 32) ^ counter[3] ^ key1,
               static_cast<std::uint32_t>(product0)};
    key0 += 0x9E3779B9;
    key1 += 0xBB67AE85;
  }
  return counter;
}

// Uniform in [0, 1) with 53 bits.
constexpr double philox_uniform(std::uint32_t seed_lo, std::uint32_t seed_hi,
                                std::uint32_t position, std::uint32_t purpose) {
  const PhiloxWords x = philox4x32_10({position, 0, purpose, 0}, seed_lo, seed_hi);
  const std::uint64_t bits = (std::uint64_t{x[0]} << 32) | x[1];
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

}  // namespace helios
