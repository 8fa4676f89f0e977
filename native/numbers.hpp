// JSON numbers as a trace means them: times to the nanosecond, arguments as integers.
// The rules are those of readers/msgspec_parser.py, to the last digit.
#pragma once

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

namespace marey {

struct NotJson : std::runtime_error {
  NotJson() : std::runtime_error("not a JSON number") {}
};

constexpr double EXACT_DOUBLE_US = 8796093022208.0;  // 2^43
constexpr double LARGEST_US = 9e15;
constexpr int64_t LARGEST_WHOLE_US = 9000000000000000;

inline bool is_digit(char c) { return c >= '0' && c <= '9'; }

// The parts of a number's text; throws where the text is not a JSON number.
struct Digits {
  bool negative = false;
  bool fits = true;  // the whole part fits into 64 bits without sign
  uint64_t whole = 0;
  std::string_view fraction;
  bool has_point = false;
  bool has_exponent = false;

  explicit Digits(std::string_view text) {
    size_t at = 0;
    if (at < text.size() && text[at] == '-') negative = true, ++at;
    const size_t first = at;
    // Eighteen digits always fit; only what is longer needs to be watched.
    const size_t safe = std::min(text.size(), first + 18);
    for (; at < safe && is_digit(text[at]); ++at) {
      whole = whole * 10 + static_cast<uint64_t>(text[at] - '0');
    }
    for (; at < text.size() && is_digit(text[at]); ++at) {
      const uint64_t digit = static_cast<uint64_t>(text[at] - '0');
      if (whole > (std::numeric_limits<uint64_t>::max() - digit) / 10) fits = false;
      whole = whole * 10 + digit;
    }
    if (at == first || (text[first] == '0' && at - first > 1)) throw NotJson();
    if (at < text.size() && text[at] == '.') {
      has_point = true;
      const size_t begin = ++at;
      while (at < text.size() && is_digit(text[at])) ++at;
      fraction = text.substr(begin, at - begin);
      if (fraction.empty()) throw NotJson();
    }
    if (at < text.size() && (text[at] == 'e' || text[at] == 'E')) {
      has_exponent = true;
      ++at;
      if (at < text.size() && (text[at] == '+' || text[at] == '-')) ++at;
      const size_t begin = at;
      while (at < text.size() && is_digit(text[at])) ++at;
      if (at == begin) throw NotJson();
    }
    if (at != text.size()) throw NotJson();
  }

  bool is_whole() const { return !has_point && !has_exponent; }
};

inline double to_double(std::string_view text) {
  double value = 0;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
  if (result.ec == std::errc::result_out_of_range) {
    return std::numeric_limits<double>::infinity();
  }
  if (result.ec != std::errc()) throw NotJson();
  return value;
}

// Whole and fraction apart: multiplied together they would be rounded twice.
inline int64_t rounded_ns(double us) {
  const double whole = std::floor(us);
  return static_cast<int64_t>(whole) * 1000 +
         static_cast<int64_t>(std::nearbyint((us - whole) * 1000.0));
}

// Microseconds as nanoseconds, to the nearest; `missing` where that does not fit.
inline int64_t time_ns(std::string_view text, int64_t missing) {
  const Digits digits(text);
  const int64_t sign = digits.negative ? -1 : 1;
  if (digits.is_whole()) {
    if (!digits.fits || digits.whole >= static_cast<uint64_t>(LARGEST_WHOLE_US)) return missing;
    return sign * static_cast<int64_t>(digits.whole) * 1000;
  }
  const bool small = digits.fits && digits.whole < (uint64_t{1} << 43);
  if (small && !digits.has_exponent && digits.fraction.size() <= 3) {
    int64_t ns = 0;
    for (size_t n = 0; n < 3; ++n) {
      ns = ns * 10 + (n < digits.fraction.size() ? digits.fraction[n] - '0' : 0);
    }
    return sign * (static_cast<int64_t>(digits.whole) * 1000 + ns);
  }
  const double value = to_double(text);
  if (!(std::abs(value) < LARGEST_US)) return missing;
  if (digits.has_exponent || std::abs(value) < EXACT_DOUBLE_US) return rounded_ns(value);
  int64_t ns = 0;
  for (size_t n = 0; n < 3; ++n) {
    ns = ns * 10 + (n < digits.fraction.size() ? digits.fraction[n] - '0' : 0);
  }
  if (digits.fraction.size() > 3 && digits.fraction[3] >= '5') ++ns;
  return sign * (static_cast<int64_t>(digits.whole) * 1000 + ns);
}

inline std::optional<int64_t> signed_whole(bool negative, bool fits, uint64_t whole) {
  constexpr uint64_t limit = uint64_t{1} << 63;
  if (!fits || whole > limit || (whole == limit && !negative)) return std::nullopt;
  return negative ? static_cast<int64_t>(0 - whole) : static_cast<int64_t>(whole);
}

// A number as an integer, cut towards zero; nothing where it does not fit. Ids of 64 bits without
// sign keep their bits; the largest one is what writers put for "none".
inline std::optional<int64_t> number_as_int(std::string_view text) {
  const Digits digits(text);
  if (digits.is_whole()) {
    const bool unsigned_id = !digits.negative && digits.fits && (digits.whole >> 63) != 0;
    if (unsigned_id && digits.whole != std::numeric_limits<uint64_t>::max()) {
      return static_cast<int64_t>(digits.whole);
    }
    return signed_whole(digits.negative, digits.fits, digits.whole);
  }
  const double value = to_double(text);
  if (!(std::abs(value) < 4611686018427387904.0)) return std::nullopt;
  return static_cast<int64_t>(value);
}

// The integer that a string spells (decimal, or hexadecimal with 0x); nothing if it spells none.
inline std::optional<int64_t> text_as_int(std::string_view text) {
  if (text.size() > 2 && text[0] == '0' && (text[1] == 'x' || text[1] == 'X')) {
    if (text.size() > 18) return std::nullopt;
    uint64_t value = 0;
    const auto result = std::from_chars(text.data() + 2, text.data() + text.size(), value, 16);
    if (result.ec != std::errc() || result.ptr != text.data() + text.size()) return std::nullopt;
    return signed_whole(false, true, value);
  }
  bool negative = false;
  if (!text.empty() && (text[0] == '+' || text[0] == '-')) {
    negative = text[0] == '-';
    text.remove_prefix(1);
  }
  if (text.empty() || text.size() > 19) return std::nullopt;
  uint64_t value = 0;
  for (const char c : text) {
    if (!is_digit(c)) return std::nullopt;
    value = value * 10 + static_cast<uint64_t>(c - '0');
  }
  return signed_whole(negative, true, value);
}

} // namespace marey
