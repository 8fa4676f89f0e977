// Text as integers: every text once, found by hash.
#pragma once

#include <cstdint>
#include <cstring>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

namespace marey {

inline uint64_t hash_text(std::string_view text) {
  uint64_t hash = 0x9E3779B97F4A7C15ull ^ (text.size() * 0xFF51AFD7ED558CCDull);
  const char *at = text.data();
  size_t left = text.size();
  for (; left >= 8; at += 8, left -= 8) {
    uint64_t word;
    std::memcpy(&word, at, 8);
    hash = (hash ^ word) * 0x9FB21C651E98DF25ull;
    hash ^= hash >> 32;
  }
  uint64_t word = 0;
  std::memcpy(&word, at, left);
  hash = (hash ^ word) * 0x9FB21C651E98DF25ull;
  return hash ^ (hash >> 29);
}

// Text → number, open addressing. Keeps its own copy of each text.
class TextTable {
public:
  TextTable() : slots_(1024, EMPTY) {}

  // The number stored for this text, or -1.
  int32_t find(std::string_view text, uint64_t hash) const {
    const size_t mask = slots_.size() - 1;
    for (size_t slot = hash & mask; slots_[slot] != EMPTY; slot = (slot + 1) & mask) {
      const Entry &entry = entries_[slots_[slot]];
      if (entry.hash == hash && entry.text == text) return entry.value;
    }
    return -1;
  }

  void insert(std::string_view text, uint64_t hash, int32_t value) {
    if ((entries_.size() + 1) * 2 > slots_.size()) grow();
    entries_.push_back({std::string(text), hash, value});
    place(static_cast<int32_t>(entries_.size() - 1), hash);
  }

  size_t size() const { return entries_.size(); }
  const std::string &text(size_t n) const { return entries_[n].text; }

private:
  struct Entry {
    std::string text;
    uint64_t hash;
    int32_t value;
  };
  static constexpr int32_t EMPTY = -1;

  void place(int32_t entry, uint64_t hash) {
    const size_t mask = slots_.size() - 1;
    size_t slot = hash & mask;
    while (slots_[slot] != EMPTY) slot = (slot + 1) & mask;
    slots_[slot] = entry;
  }

  void grow() {
    slots_.assign(slots_.size() * 2, EMPTY);
    for (size_t n = 0; n < entries_.size(); ++n) place(static_cast<int32_t>(n), entries_[n].hash);
  }

  std::vector<int32_t> slots_;
  std::deque<Entry> entries_;
};

} // namespace marey
