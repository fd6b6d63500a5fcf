// Vector passes over logits (kernels.h says what each gives); `sample` decides with them.
#include "kernels.h"
#include "vector.h"

namespace helios::HELIOS_ISA {
namespace {

void block_maxima(const float* logits, std::int64_t count, float* maxima) {
  static_assert(LogitScans::kMaximumStride == kLanes);
  const Floats lowest = broadcast(-__builtin_inff());
  for (std::int64_t i = 0; i < count; i += LogitScans::kMaximumGroup, maxima += kLanes) {
    Floats highest = lowest;
    for (std::int64_t j = i; j < i + LogitScans::kMaximumGroup && j < count; j += kLanes) {
      const std::int64_t live = count - j;
      Floats value = load_up_to(logits + j, live);
      if (live < kLanes) value = keep_lanes(value, 0, static_cast<int>(live), lowest);
      highest = maximum(value, highest);
    }
    store(maxima, highest);
  }
}

double sum_exponentials(const float* logits, std::int64_t count, float largest) {
  Doubles sum = zero_doubles();
  for (std::int64_t i = 0; i < count; i += kLanes) {
    const std::int64_t live = count - i;
    Floats value = exponential(load_up_to(logits + i, live) - broadcast(largest));
    if (live < kLanes) value = keep_lanes(value, 0, static_cast<int>(live), zeros());
    sum = add(sum, value);
  }
  return total(sum);
}

struct Weighing {
  Floats temperature;
  Floats largest;
  Floats least;

  Weighing(float temperature_value, float largest_logit, float least_weight)
      : temperature(broadcast(temperature_value)),
        largest(broadcast(largest_logit) / broadcast(temperature_value)),
        least(broadcast(least_weight)) {}

  // Lanes past `live` and NaN weigh nothing.
  HELIOS_INLINE Floats operator()(const float* logits, std::int64_t live) const {
    const Floats weight = exponential(load_up_to(logits, live) / temperature - largest);
    // maximum() gives its second operand for NaN: a NaN weight becomes -1, then 0.
    const Floats known = maximum(weight, broadcast(-1.0f));
    const Floats kept = select_less(known, least, zeros(), maximum(known, zeros()));
    return live < kLanes ? keep_lanes(kept, 0, static_cast<int>(live), zeros()) : kept;
  }
};

void weights(const float* logits, std::int64_t count, float temperature, float largest,
             float least, float* out) {
  const Weighing weigh(temperature, largest, least);
  for (std::int64_t i = 0; i < count; i += kLanes) {
    store_up_to(out + i, weigh(logits + i, count - i), count - i);
  }
}

void block_weights(const float* logits, std::int64_t count, float temperature, float largest,
                   float least, double* sums) {
  const Weighing weigh(temperature, largest, least);
  for (std::int64_t i = 0; i < count; i += LogitScans::kSumBlock) {
    Doubles sum = zero_doubles();
    for (std::int64_t j = i; j < i + LogitScans::kSumBlock && j < count; j += kLanes) {
      sum = add(sum, weigh(logits + j, count - j));
    }
    *sums++ = total(sum);
  }
}

// Plain, so that every instruction set rounds alike; the compiler makes vectors of it.
void penalise(float* logits, const std::int32_t* counts, const std::int32_t* outputs,
              std::int64_t count, float repetition, float frequency, float presence) {
  for (std::int64_t i = 0; i < count; ++i) {
    const float logit = logits[i];
    const float divided = logit / repetition;
    const float multiplied = logit * repetition;
    const float repeated = counts[i] > 0 ? (logit > 0.0f ? divided : multiplied) : logit;
    const float seen = static_cast<float>(outputs[i]);
    logits[i] = (repeated - frequency * seen) - (outputs[i] > 0 ? presence : 0.0f);
  }
}

}  // namespace

constinit const LogitScans kLogitScans = {block_maxima,  sum_exponentials, weights,
                                          block_weights, penalise};

}  // namespace helios::HELIOS_ISA
