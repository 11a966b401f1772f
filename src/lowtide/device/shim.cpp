// Counts the bytes of every CPU tensor: stands between torch and its own CPU allocator.
// Sees all threads and all workspaces that torch takes from its allocator.
#include <atomic>
#include <cstdint>
#include <mutex>
#include <unordered_map>

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

namespace {

std::atomic<int64_t> current{0};
std::atomic<int64_t> peak{0};
c10::Allocator* inner = nullptr;
// Spread over shards so that threads that allocate at once seldom wait for each other.
struct Shard {
  std::mutex lock;
  std::unordered_map<void*, size_t> sizes;
};
constexpr size_t kShards = 16;
Shard* shards = nullptr;  // never destroyed: tensors may die after static destructors ran

Shard& shard_of(void* data) {
  return shards[(reinterpret_cast<uintptr_t>(data) >> 6) % kShards];
}

void add(int64_t bytes) {
  int64_t now = current.fetch_add(bytes) + bytes;
  int64_t seen = peak.load();
  while (now > seen && !peak.compare_exchange_weak(seen, now)) {
  }
}

void release(void* data) {
  if (data == nullptr) return;
  size_t bytes = 0;
  {
    Shard& shard = shard_of(data);
    std::lock_guard<std::mutex> guard(shard.lock);
    auto found = shard.sizes.find(data);
    if (found != shard.sizes.end()) {
      bytes = found->second;
      shard.sizes.erase(found);
    }
  }
  current.fetch_sub(static_cast<int64_t>(bytes));
  inner->raw_deleter()(data);
}

class Counting final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    c10::DataPtr taken = inner->allocate(bytes);
    const c10::Device device = taken.device();
    void* data = taken.release_context();
    if (data != nullptr) {
      {
        Shard& shard = shard_of(data);
        std::lock_guard<std::mutex> guard(shard.lock);
        shard.sizes[data] = bytes;
      }
      add(static_cast<int64_t>(bytes));
    }
    return {data, data, &release, device};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, size_t count) const override { inner->copy_data(to, from, count); }
};

}  // namespace

extern "C" {
void lowtide_install() {
  if (inner != nullptr) return;
  inner = c10::GetCPUAllocator();
  shards = new Shard[kShards];
  static Counting counting;
  c10::SetCPUAllocator(&counting, /*priority=*/255);
}
int64_t lowtide_current() { return current.load(); }
int64_t lowtide_peak() { return peak.load(); }
void lowtide_reset_peak() { peak.store(current.load()); }
}
