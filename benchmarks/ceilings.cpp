// What this machine can do at most, measured by benchmarks/kernels.py in the same run as the
// kernels: bytes read from memory, and multiply-adds on registers alone. Compiled on the spot with
// -march=native.
#include <immintrin.h>
#include <sys/mman.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

namespace {

template <class Body>
double seconds(int threads, const Body& body) {
  const auto start = std::chrono::steady_clock::now();
  std::vector<std::thread> pool;
  for (int i = 0; i < threads; ++i) pool.emplace_back([&, i] { body(i); });
  for (auto& thread : pool) thread.join();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

constexpr std::int64_t kAhead = 2048;  // floats

volatile float sink;
volatile long long int_sink;

// Hides where a value comes from, so that the compiler neither joins equal chains of operations nor
// computes a product once for all of them.
template <class Vector>
inline void hide(Vector& value) {
  asm volatile("" : "+v"(value));
}

}  // namespace

// Bytes a second that `threads` threads read from buffers far larger than any cache.
extern "C" double read_bandwidth(int threads) {
  const std::int64_t nbytes = std::int64_t{192} << 20;
  std::vector<char*> buffers;
  for (int i = 0; i < threads; ++i) {
    buffers.push_back(static_cast<char*>(std::aligned_alloc(2 << 20, nbytes)));
    madvise(buffers.back(), nbytes, MADV_HUGEPAGE);
    std::memset(buffers.back(), 1, nbytes);
  }
  double best = 0;
  for (int repeat = 0; repeat < 5; ++repeat) {
    const double took = seconds(threads, [&](int index) {
      const auto* at = reinterpret_cast<const float*>(buffers[index]);
      float total[64] = {};
      // Asked for ahead, across the borders of small pages, where the hardware's own prefetching
      // stops.
      for (std::int64_t i = 0; i < nbytes / 4; i += 64) {
        for (int j = 0; j < 64; j += 16) __builtin_prefetch(at + i + j + kAhead);
        for (int j = 0; j < 64; ++j) total[j] += at[i + j];
      }
      for (float value : total) sink = value;
    });
    const double rate = static_cast<double>(nbytes) * threads / took;
    best = rate > best ? rate : best;
  }
  for (char* buffer : buffers) std::free(buffer);
  return best;
}

// Operations a second (two a multiply-add) of f32 fused multiply-adds on registers.
extern "C" double float_peak(int threads) {
  constexpr std::int64_t kRounds = 10'000'000;
#if defined(__AVX512F__)
  typedef __m512 Vector;
  const auto fused = [](Vector a, Vector b, Vector c) { return _mm512_fmadd_ps(a, b, c); };
#else
  typedef __m256 Vector;
  const auto fused = [](Vector a, Vector b, Vector c) { return _mm256_fmadd_ps(a, b, c); };
#endif
  const double took = seconds(threads, [&](int) {
    Vector sums[12] = {};
    Vector a = sums[0] + 1.0f, b = sums[0] + 0.5f;
    for (std::int64_t i = 0; i < kRounds; ++i) {
#pragma GCC unroll 12
      for (int chain = 0; chain < 12; ++chain) {
        sums[chain] = fused(a, b, sums[chain]);
        hide(sums[chain]);
      }
    }
#pragma GCC unroll 12
    for (int chain = 0; chain < 12; ++chain) sink = sums[chain][0];
  });
  return static_cast<double>(kRounds) * 12 * (sizeof(Vector) / 4) * 2 * threads / took;
}

#if defined(__AVX512BF16__)
extern "C" double bf16_peak(int threads) {
  constexpr std::int64_t kRounds = 10'000'000;
  const double took = seconds(threads, [](int) {
    __m512 sums[12] = {};
    __m512i a = _mm512_set1_epi32(0x3f803f80), b = a;
    for (std::int64_t i = 0; i < kRounds; ++i) {
#pragma GCC unroll 12
      for (int chain = 0; chain < 12; ++chain) {
        sums[chain] = _mm512_dpbf16_ps(sums[chain], (__m512bh)a, (__m512bh)b);
        hide(sums[chain]);
      }
    }
#pragma GCC unroll 12
    for (int chain = 0; chain < 12; ++chain) sink = sums[chain][0];
  });
  return static_cast<double>(kRounds) * 12 * 32 * 2 * threads / took;
}
#else
extern "C" double bf16_peak(int threads) { return float_peak(threads); }
#endif

#if defined(__AVX512VNNI__)
extern "C" double int8_peak(int threads) {
  constexpr std::int64_t kRounds = 10'000'000;
  const double took = seconds(threads, [](int) {
    __m512i sums[12] = {};
    __m512i a = _mm512_set1_epi32(0x01010101), b = a;
    for (std::int64_t i = 0; i < kRounds; ++i) {
#pragma GCC unroll 12
      for (int chain = 0; chain < 12; ++chain) {
        sums[chain] = _mm512_dpbusd_epi32(sums[chain], a, b);
        hide(sums[chain]);
      }
    }
#pragma GCC unroll 12
    for (int chain = 0; chain < 12; ++chain) int_sink = sums[chain][0];
  });
  return static_cast<double>(kRounds) * 12 * 64 * 2 * threads / took;
}
#else
extern "C" double int8_peak(int threads) { return 2 * float_peak(threads); }
#endif
