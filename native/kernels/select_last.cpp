// Which rows go on: `select_last` compacts the last packed row of each sampling lane, in lane
// order; `slice_rows` counts the live rows of a part.
#include <algorithm>
#include <cstring>

#include "../catalogue.h"
#include "host_kernels.h"

namespace helios {

void run_select_last(const Launch& launch, const Piece& piece) {
  using namespace select_last;
  const std::int64_t width = launch.integer(kWidth);
  const std::int64_t packed_capacity = launch.integer(kPackedCapacity);
  const auto* lengths = launch.read<std::int32_t>(kQueryLength);
  const auto* sample = launch.read<std::int32_t>(kSample);
  const std::int64_t lanes = launch.rows();
  std::int64_t end = 0;  // packed rows of the lanes so far
  std::int32_t selected = 0;
  for (std::int64_t lane = 0; lane < lanes; ++lane) {
    if (lengths[lane] <= 0) continue;
    end += lengths[lane];
    if (sample[lane] == 0 || end > packed_capacity) continue;
    if (piece.index == 0) {
      launch.write<std::int32_t>(kSelectedLane)[selected] = static_cast<std::int32_t>(lane);
    }
    if (selected % piece.count == piece.index) {
      std::memcpy(launch.write<float>(kOut) + selected * width,
                  launch.read<float>(kX) + (end - 1) * width,
                  static_cast<std::size_t>(width) * sizeof(float));
    }
    ++selected;
  }
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
