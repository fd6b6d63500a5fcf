// How far the workers have got with one submission. A launch is cut into pieces; every worker has a
// share of them and takes from the others' once its own is gone, and a launch is over when all its
// pieces are, not when all workers have come by. So a worker that the operating system took off its
// core delays the others by the piece it holds at most: on a machine with other work to do, the
// rest of the pool runs on without it.
//
// What a worker counts lies in memory that only it writes to as long as nobody takes from its share:
// on a quiet machine the end of a launch moves a cache line a worker, whatever the pieces.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace helios {

class Progress {
 public:
  // For a submission of `launches` launches. No worker may be inside.
  void reset(std::size_t launches, int workers);

  // A worker may look at the counters only between enter() and leave(), and only if enter() says
  // that they still belong to `sequence`.
  bool enter(std::uint64_t sequence);
  void leave() { inside_.fetch_sub(1, std::memory_order_release); }

  // Opens the counters to workers of `sequence`, or closes them and waits for those inside.
  void open(std::uint64_t sequence) { sequence_.store(sequence, std::memory_order_seq_cst); }
  void close();

  // The next piece of a launch for a worker, `pieces` if there is none left. More pieces than there
  // are workers are a multiple of their number. Index `launches` stands for the end of the
  // submission, which is one piece: whoever gets it completes the submission.
  std::uint32_t take(std::size_t launch, int worker, std::uint32_t pieces);
  // Says that the worker has finished `count` pieces of a launch, once it gets no more of them.
  void finish(std::size_t launch, int worker, std::uint32_t count);
  // Waits until all pieces of a launch are finished: spins for a moment, then sleeps.
  void wait(std::size_t launch, std::uint32_t pieces);

 private:
  struct Counters {
    std::atomic<std::uint32_t> taken{0};  // of the worker's share, by anybody
    std::atomic<std::uint32_t> finished{0};  // by the worker, of anybody's share
  };
  struct alignas(64) Line {
    Counters of[8];
  };

  Counters& at(std::uint32_t worker, std::size_t launch) const {
    return lines_[worker * stride_ + launch / 8].of[launch % 8];
  }
  bool finished(std::size_t launch, std::uint32_t pieces) const;

  std::unique_ptr<Line[]> lines_;  // [workers][stride_]
  std::size_t stride_ = 0;
  std::size_t capacity_ = 0;
  int workers_ = 0;
  std::atomic<std::uint64_t> sequence_{0};
  std::atomic<std::uint32_t> inside_{0};
  std::atomic<std::uint32_t> sleepers_{0};
  std::atomic<std::uint32_t> wakes_{0};
};

}  // namespace helios
