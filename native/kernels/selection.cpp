// Which rows go on: `select_last` compacts the last packed row of each sampling lane, in lane order,
// `select_attending` all that such a row attends by; `slice_rows` counts the live rows of a part.
#include <algorithm>
#include <cstring>

#include "../catalogue.h"
#include "../layouts.h"
#include "host_kernels.h"

namespace helios {
namespace {

// Fixed-size rows of one operand, copied to another's.
struct Rows {
  const std::byte* from;
  std::byte* to;
  std::int64_t nbytes;  // of one

  Rows(const Launch& launch, int source, int destination, std::int64_t row_nbytes)
      : from(launch.read<std::byte>(source)),
        to(launch.write<std::byte>(destination)),
        nbytes(row_nbytes) {}

  void copy(std::int64_t row, std::int64_t place) const {
    std::memcpy(to + place * nbytes, from + row * nbytes, static_cast<std::size_t>(nbytes));
  }
};

static_assert(int{select_last::kQueryLength} == int{select_attending::kQueryLength});
static_assert(int{select_last::kSample} == int{select_attending::kSample});
static_assert(int{select_last::kPackedCapacity} == int{select_attending::kPackedCapacity});

// Calls `take` with the place, the lane and the last packed row of each lane that samples; returns
// how many there are.
template <class Take>
std::int32_t select(const Launch& launch, const Take& take) {
  const std::int64_t packed_capacity = launch.integer(select_last::kPackedCapacity);
  const auto* lengths = launch.read<std::int32_t>(select_last::kQueryLength);
  const auto* sample = launch.read<std::int32_t>(select_last::kSample);
  const std::int64_t lanes = launch.rows();
  std::int64_t end = 0;  // packed rows of the lanes so far
  std::int32_t selected = 0;
  for (std::int64_t lane = 0; lane < lanes; ++lane) {
    if (lengths[lane] <= 0) continue;
    end += lengths[lane];
    if (sample[lane] == 0 || end > packed_capacity) continue;
    take(selected, static_cast<std::int32_t>(lane), end - 1);
    ++selected;
  }
  return selected;
}

}  // namespace

void run_select_last(const Launch& launch, const Piece& piece) {
  using namespace select_last;
  const Rows x(launch, kX, kOut, launch.integer(kWidth) * std::int64_t{sizeof(float)});
  auto* lanes = launch.write<std::int32_t>(kSelectedLane);
  const std::int32_t selected =
      select(launch, [&](std::int32_t place, std::int32_t lane, std::int64_t row) {
        if (piece.index == 0) lanes[place] = lane;
        if (place % piece.count == piece.index) x.copy(row, place);
      });
  if (piece.index == 0) *launch.write<std::int32_t>(kSelectedRows) = selected;
}

void run_select_attending(const Launch& launch, const Piece& piece) {
  using namespace select_attending;
  const Rows x(launch, kX, kOut, launch.integer(kWidth) * std::int64_t{sizeof(float)});
  const Rows queries(launch, kQueries, kOutQueries,
                     launch.integer(kElements) * element_nbytes(launch.integer(kDtype)));
  const auto* positions = launch.read<std::int32_t>(kPositions);
  const auto* slots = launch.read<std::int32_t>(kSlot);
  auto* lanes = launch.write<std::int32_t>(kSelectedLane);
  auto* out_positions = launch.write<std::int32_t>(kOutPositions);
  auto* out_slots = launch.write<std::int32_t>(kOutSlot);
  const std::int32_t selected =
      select(launch, [&](std::int32_t place, std::int32_t lane, std::int64_t row) {
        if (piece.index == 0) {
          lanes[place] = lane;
          out_positions[place] = positions[row];
          out_slots[place] = slots[row];
        }
        if (place % piece.count == piece.index) {
          x.copy(row, place);
          queries.copy(row, place);
        }
      });
  if (piece.index == 0) *launch.write<std::int32_t>(kSelectedRows) = selected;
}

void run_slice_rows(const Launch& launch, const Piece& piece) {
  using namespace slice_rows;
  if (piece.index != 0) return;
  const std::int64_t left = launch.rows() - launch.integer(kStart);
  *launch.write<std::int32_t>(kOut) =
      static_cast<std::int32_t>(std::clamp<std::int64_t>(left, 0, launch.integer(kLimit)));
}

}  // namespace helios
