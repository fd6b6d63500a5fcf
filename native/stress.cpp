// A program that makes the replayer's threads meet in as many ways as it can, for a thread
// sanitizer (tsan.sh) to watch: programs of dependent launches that are queued to the limit while
// others observe, programs added in between that need more scratch, and replayers closed by several
// threads at once with work still queued. Nothing is timed, and answers are compared: a launch that
// began before the one it depends on had ended shows in them too.
//
//     stress [ROUNDS]
//
// Ends with status 1 and one line where an answer differs.
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "catalogue.h"
#include "layouts.h"
#include "replayer.h"

namespace helios {
namespace {

constexpr std::int64_t kRows = 12;
constexpr std::int64_t kWidth = 64;
constexpr std::int64_t kOutputs = 64;
constexpr int kSubmissions = 400;
constexpr int kClosers = 3;
constexpr int kObservers = 2;

void require(bool holds, const std::string& what) {
  if (holds) return;
  std::fprintf(stderr, "stress: %s\n", what.c_str());
  std::exit(1);
}

// Numbers that look random and are the same each time.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed * 2654435769u + 1) {}
  std::uint32_t below(std::uint32_t limit) {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return static_cast<std::uint32_t>((state_ >> 33) % limit);
  }
  float real() { return static_cast<float>(below(2001)) / 1000.0f - 1.0f; }

 private:
  std::uint64_t state_;
};

// A launch list in the making.
class List {
 public:
  using Operand = std::pair<const void*, std::size_t>;

  void add(KernelId kernel, const std::vector<Operand>& operands,
           const std::vector<std::int64_t>& integers, const std::vector<double>& floats) {
    kernels_.push_back(static_cast<std::int32_t>(kernel));
    for (const auto& [address, nbytes] : operands) {
      addresses_.push_back(reinterpret_cast<std::uint64_t>(address));
      nbytes_.push_back(nbytes);
    }
    integers_.insert(integers_.end(), integers.begin(), integers.end());
    floats_.insert(floats_.end(), floats.begin(), floats.end());
    operand_starts_.push_back(static_cast<std::int32_t>(addresses_.size()));
    integer_starts_.push_back(static_cast<std::int32_t>(integers_.size()));
    float_starts_.push_back(static_cast<std::int32_t>(floats_.size()));
  }
  LaunchList view() const {
    return {kernels_,        operand_starts_, addresses_,    nbytes_,
            integer_starts_, integers_,       float_starts_, floats_};
  }

 private:
  std::vector<std::int32_t> kernels_;
  std::vector<std::int32_t> operand_starts_{0};
  std::vector<std::uint64_t> addresses_;
  std::vector<std::uint64_t> nbytes_;
  std::vector<std::int32_t> integer_starts_{0};
  std::vector<std::int64_t> integers_;
  std::vector<std::int32_t> float_starts_{0};
  std::vector<double> floats_;
};

template <class T>
List::Operand operand(const std::vector<T>& values) {
  return {values.data(), values.size() * sizeof(T)};
}

// The memory of one replayer's programs: a row of numbers that each launch reads and the next
// replaces, and what sampling needs.
struct Memory {
  explicit Memory(std::uint32_t vocab) : logits(kRows * vocab), vocab(vocab) {
    Random random(7);
    for (float& value : x) value = random.real();
    for (float& value : norm) value = 1.0f + random.real() / 4;
    for (float& value : weight) value = random.real();
    for (float& value : logits) value = 8 * random.real();
    for (std::int64_t i = 0; i < kRows; ++i) slots[static_cast<std::size_t>(i)] = 0;
    state.resize(1);
    std::memset(state.data(), 0, sizeof(RequestState));
    state[0].temperature = 1.0f;
  }

  // Norm and projection in turn, each on what the other left, then a sample of each row.
  List chain(int links) const {
    List list;
    for (int i = 0; i < links; ++i) {
      list.add(KernelId::kRmsNorm, {operand(rows), operand(x), operand(norm), operand(normed)},
               {kRows, kWidth, 0}, {1e-5});
      list.add(KernelId::kLinear,
               {operand(rows), operand(normed), operand(weight), {nullptr, 0}, operand(x)},
               {kRows, kWidth, kOutputs, static_cast<int>(Packing::kTile16F32), 0, 0}, {});
    }
    list.add(KernelId::kSample,
             {operand(rows), {nullptr, 0}, operand(slots), {nullptr, 0}, operand(state),
              operand(logits), operand(tokens), operand(logprobs)},
             {kRows, vocab, vocab}, {});
    return list;
  }

  std::vector<std::int32_t> rows{kRows};
  std::vector<float> x = std::vector<float>(kRows * kWidth);
  std::vector<float> norm = std::vector<float>(kWidth);
  std::vector<float> normed = std::vector<float>(kRows * kWidth);
  std::vector<float> weight = std::vector<float>(kOutputs * kWidth);
  std::vector<float> logits;
  std::vector<std::int32_t> slots = std::vector<std::int32_t>(kRows);
  std::vector<RequestState> state;
  std::vector<std::int32_t> tokens = std::vector<std::int32_t>(kRows);
  std::vector<float> logprobs = std::vector<float>(kRows);
  std::uint32_t vocab;
};

struct Answer {
  std::vector<float> x;
  std::vector<std::int32_t> tokens;
  bool operator==(const Answer&) const = default;
};

// What `submissions` of a chain leave, on one thread: nothing can overlap there.
Answer alone(int links, int submissions) {
  Memory memory(64);
  Replayer replayer(1, "portable");
  const int program = replayer.add_program(memory.chain(links).view());
  for (int sequence = 1; sequence <= submissions; ++sequence) {
    replayer.submit(program, static_cast<std::uint64_t>(sequence));
    require(replayer.wait(static_cast<std::uint64_t>(sequence), std::chrono::hours(1)), "stalled");
  }
  return {memory.x, memory.tokens};
}

// Queues chains as fast as there is room, while others look on; the answer is the one of one thread.
void fill_the_queue(int threads, const Answer& expected) {
  Memory memory(64);
  Replayer replayer(threads, "portable");
  const int chain = replayer.add_program(memory.chain(2).view());
  const int nothing = replayer.add_program(List().view());
  std::atomic<bool> over{false};
  std::vector<std::thread> observers;
  for (int i = 0; i < kObservers; ++i) {
    observers.emplace_back([&] {
      while (!over.load()) {
        const std::uint64_t done = replayer.completed();
        if (done != 0) {
          try {
            const auto [start, end] = replayer.timing(done);
            require(start <= end, "a submission ended before it began");
          } catch (const std::invalid_argument&) {
            // More than 256 have been submitted since.
          }
        }
        replayer.wait(done + 1, std::chrono::milliseconds(1));
        static_cast<void>(replayer.launches() + replayer.scratch_nbytes());
      }
    });
  }
  std::uint64_t sequence = 0;
  for (int i = 0; i < kSubmissions; ++i) {
    for (const int program : {chain, nothing}) {
      ++sequence;
      while (sequence - replayer.completed() > Replayer::kRing) {
        replayer.wait(sequence - Replayer::kRing, std::chrono::hours(1));
      }
      replayer.submit(program, sequence);
    }
  }
  require(replayer.wait(sequence, std::chrono::hours(1)), "stalled");
  over = true;
  for (std::thread& observer : observers) observer.join();
  require(Answer{memory.x, memory.tokens} == expected, "threads change the answer");
}

// Adds programs that need more and more scratch, each while workers may still be on their way out
// of the last submission.
void grow(int threads) {
  std::vector<std::unique_ptr<Memory>> memories;
  Replayer replayer(threads, "portable");
  std::uint64_t sequence = 0;
  for (std::uint32_t vocab = 64; vocab <= 64u << 6; vocab *= 2) {
    memories.push_back(std::make_unique<Memory>(vocab));
    const int program = replayer.add_program(memories.back()->chain(1).view());
    for (int i = 0; i < 3; ++i) {
      replayer.submit(program, ++sequence);
      require(replayer.wait(sequence, std::chrono::hours(1)), "stalled");
    }
  }
}

// Closes a replayer from several threads while another still submits: what was taken is finished.
void close_meanwhile(int threads, std::uint64_t seed) {
  Memory memory(64);
  Replayer replayer(threads, "portable");
  const int program = replayer.add_program(memory.chain(1).view());
  Random random(seed);
  const std::uint64_t closed_from = 1 + random.below(200);
  std::atomic<std::uint64_t> taken{0};
  std::vector<std::thread> closers;
  for (int i = 0; i < kClosers; ++i) {
    closers.emplace_back([&] {
      while (taken.load() < closed_from) std::this_thread::yield();
      replayer.close();
    });
  }
  try {
    for (std::uint64_t sequence = 1; sequence <= Replayer::kRing; ++sequence) {
      replayer.submit(program, sequence);
      taken = sequence;
    }
  } catch (const std::runtime_error&) {
    // Closed: what was to happen.
  }
  for (std::thread& closer : closers) closer.join();
  require(replayer.completed() == taken.load(), "closed before what was queued was finished");
}

int run(int rounds) {
  const Answer expected = alone(2, kSubmissions);
  for (int round = 0; round < rounds; ++round) {
    for (const int threads : {1, 2, 3, 5}) {
      fill_the_queue(threads, expected);
      grow(threads);
      for (int i = 0; i < 20; ++i) {
        close_meanwhile(threads, static_cast<std::uint64_t>(round * 20 + i));
      }
    }
    for (int i = 0; i < 50; ++i) Replayer(1 + i % 5, "portable").close();
  }
  std::printf("stress: %d rounds\n", rounds);
  return 0;
}

}  // namespace
}  // namespace helios

int main(int count, char** arguments) {
  return helios::run(count > 1 ? std::atoi(arguments[1]) : 3);
}
