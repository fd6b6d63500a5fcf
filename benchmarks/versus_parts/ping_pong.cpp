// How far apart two processors are: nanoseconds that a cache line takes one way from one to the
// other. Compiled on the spot by machine.py; a virtual machine's processors may be moved about.
#include <sched.h>

#include <atomic>
#include <chrono>
#include <thread>

namespace {

void pin(int processor) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(processor, &set);
  sched_setaffinity(0, sizeof set, &set);
}

}  // namespace

extern "C" double one_way_ns(int first, int second, int rounds) {
  alignas(64) std::atomic<int> ball{0};
  std::thread other([&] {
    pin(second);
    for (int i = 0; i < rounds; ++i) {
      while (ball.load(std::memory_order_acquire) != 2 * i + 1) {
      }
      ball.store(2 * i + 2, std::memory_order_release);
    }
  });
  double took = 0;
  std::thread one([&] {
    pin(first);
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < rounds; ++i) {
      ball.store(2 * i + 1, std::memory_order_release);
      while (ball.load(std::memory_order_acquire) != 2 * i + 2) {
      }
    }
    took = std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - start).count();
  });
  one.join();
  other.join();
  return took / rounds / 2;
}
