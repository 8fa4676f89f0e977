// A document with one list of many records → the records, only the fields that are wanted.
//
// Records of one list repeat each other: a field that is written as in the record before it is
// compared and not read. Of the others only the extent is found here, with all of JSON's grammar;
// what a wanted value means is for the decoder of its field, which belongs to Python. A document
// that holds anything unusual is given back unread, so that nothing can mean something else here.

#include <array>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "records.hpp"
#include "texts.hpp"

namespace nb = nanobind;

namespace marey {
namespace {

// Deeper documents, and longer records, are nobody's; they only cost memory.
constexpr int DEPTH_LIMIT = 64;
constexpr size_t REMEMBERED_FIELDS = 1024;
constexpr size_t REMEMBERED_VALUES = 512;  // per field; a power of two

// Not what such a document always is: somebody else has to read it.
struct Unusual {};

// Walks over JSON. The text ends with a NUL that is no part of it, as the bytes of Python do: it is
// no character that any part of JSON may hold, so that nothing is read beyond it.
class Walk {
public:
  explicit Walk(std::string_view text) : at_(text.data()), end_(text.data() + text.size()) {}

  const char *at() const { return at_; }
  bool at_end() const { return at_ == end_; }

  void space() {
    while (*at_ == ' ' || *at_ == '\n' || *at_ == '\r' || *at_ == '\t') ++at_;
  }

  bool takes(char wanted) {
    if (*at_ != wanted) return false;
    ++at_;
    return true;
  }

  void expect(char wanted) {
    if (!takes(wanted)) throw Unusual();
  }

  // Whether the text goes on like this; then it is passed.
  bool repeats(std::string_view text) {
    if (static_cast<size_t>(end_ - at_) < text.size()) return false;
    if (std::memcmp(at_, text.data(), text.size()) != 0) return false;
    at_ += text.size();
    return true;
  }

  // A key as written; one with an escape could be another key.
  std::string_view key() {
    const char *start = at_ + 1;
    if (string()) throw Unusual();
    return {start, static_cast<size_t>(at_ - 1 - start)};
  }

  void colon() {
    space();
    expect(':');
    space();
  }

  // After a value inside brackets: whether another one follows.
  bool more(char closing) {
    space();
    if (takes(closing)) return false;
    expect(',');
    space();
    return true;
  }

  std::string_view value() {
    const char *start = at_;
    any_value(0);
    return {start, static_cast<size_t>(at_ - start)};
  }

private:
  void any_value(int depth) {
    switch (*at_) {
    case '"':
      string();
      return;
    case '{':
      object(depth);
      return;
    case '[':
      array(depth);
      return;
    case 't':
      word("true");
      return;
    case 'f':
      word("false");
      return;
    case 'n':
      word("null");
      return;
    default:
      number();
    }
  }

  void object(int depth) {
    if (depth >= DEPTH_LIMIT) throw Unusual();
    ++at_;
    space();
    if (takes('}')) return;
    do {
      string();
      colon();
      any_value(depth + 1);
    } while (more('}'));
  }

  void array(int depth) {
    if (depth >= DEPTH_LIMIT) throw Unusual();
    ++at_;
    space();
    if (takes(']')) return;
    do {
      any_value(depth + 1);
    } while (more(']'));
  }

  void word(std::string_view wanted) {
    if (!repeats(wanted)) throw Unusual();
  }

  void digits() {
    if (*at_ < '0' || *at_ > '9') throw Unusual();
    while (*at_ >= '0' && *at_ <= '9') ++at_;
  }

  void number() {
    takes('-');
    if (!takes('0')) digits();
    if (takes('.')) digits();
    if (*at_ == 'e' || *at_ == 'E') {
      ++at_;
      if (!takes('-')) takes('+');
      digits();
    }
  }

  // A string from its first quote to its last; whether it holds an escape.
  bool string() {
    expect('"');
    bool escaped = false;
    for (;;) {
      plain();
      if (takes('"')) return escaped;
      expect('\\');
      escape();
      escaped = true;
    }
  }

  // Up to the next quote, backslash or control character.
  void plain() {
#if defined(__SSE2__)
    const __m128i quote = _mm_set1_epi8('"'), backslash = _mm_set1_epi8('\\');
    const __m128i control = _mm_set1_epi8(0x1F);
    while (end_ - at_ >= 16) {
      const __m128i block = _mm_loadu_si128(reinterpret_cast<const __m128i *>(at_));
      const __m128i ends = _mm_or_si128(_mm_cmpeq_epi8(block, quote), _mm_cmpeq_epi8(block, backslash));
      const __m128i low = _mm_cmpeq_epi8(_mm_min_epu8(block, control), block);
      const int stops = _mm_movemask_epi8(_mm_or_si128(ends, low));
      if (stops != 0) {
        at_ += __builtin_ctz(static_cast<unsigned>(stops));
        return;
      }
      at_ += 16;
    }
#endif
    while (*at_ != '"' && *at_ != '\\' && static_cast<unsigned char>(*at_) >= ' ') ++at_;
  }

  // What follows a backslash; surrogates only in pairs.
  void escape() {
    if (!takes('u')) {
      if (*at_ == '\0' || std::strchr("\"\\/bfnrt", *at_) == nullptr) throw Unusual();
      ++at_;
      return;
    }
    const unsigned code = code_unit();
    if (code < 0xD800 || code > 0xDFFF) return;
    if (code > 0xDBFF) throw Unusual();
    expect('\\');
    expect('u');
    const unsigned second = code_unit();
    if (second < 0xDC00 || second > 0xDFFF) throw Unusual();
  }

  unsigned code_unit() {
    unsigned code = 0;
    for (int n = 0; n < 4; ++n) code = code * 16 + hex_digit();
    return code;
  }

  unsigned hex_digit() {
    const char digit = *at_++;
    if (digit >= '0' && digit <= '9') return static_cast<unsigned>(digit - '0');
    if (digit >= 'a' && digit <= 'f') return static_cast<unsigned>(digit - 'a' + 10);
    if (digit >= 'A' && digit <= 'F') return static_cast<unsigned>(digit - 'A' + 10);
    throw Unusual();
  }

  const char *at_;
  const char *end_;
};

struct Wanted {
  std::string key;
  nb::object decode;
  nb::object missing;
};

constexpr int UNWANTED = -1;

// A field as the last record wrote it: its key up to the value, and all of it with the comma or
// bracket after it.
struct Field {
  std::string_view head, text;
  int place = UNWANTED;
  bool is_last = false;
  nb::object value;
};

// What the values of one field mean, by how they are written; a newer one takes an older one's place.
class Meanings {
public:
  nb::object find(std::string_view text, const nb::object &decode) {
    Meaning &known = known_[hash_text(text) % REMEMBERED_VALUES];
    if (known.text != text || !known.value.is_valid()) {
      known.value = decode(nb::bytes(text.data(), text.size()));
      known.text = text;
    }
    return known.value;
  }

private:
  struct Meaning {
    std::string_view text;
    nb::object value;
  };
  std::vector<Meaning> known_ = std::vector<Meaning>(REMEMBERED_VALUES);
};

// Reads one document. Everything it remembers points into that document's text.
class Reading {
public:
  Reading(const std::vector<Wanted> &wanted, const nb::object &make, std::string_view text)
      : wanted_(wanted), make_(make), walk_(text), meanings_(wanted.size()) {}

  nb::tuple document(const std::string &list, const std::string &beside, const nb::object &decode) {
    nb::object records = nb::none(), other = nb::none();
    walk_.space();
    walk_.expect('{');
    walk_.space();
    do {
      const std::string_view key = walk_.key();
      walk_.colon();
      if (key == list) {
        if (!records.is_none()) throw Unusual();
        records = all_records();
      } else {
        const std::string_view value = walk_.value();
        if (key == beside) other = decode(nb::bytes(value.data(), value.size()));
      }
    } while (walk_.more('}'));
    walk_.space();
    if (!walk_.at_end() || records.is_none()) throw Unusual();
    return nb::make_tuple(records, other);
  }

private:
  nb::list all_records() {
    nb::list records;
    walk_.expect('[');
    walk_.space();
    if (walk_.takes(']')) return records;
    do {
      records.append(record());
    } while (walk_.more(']'));
    return records;
  }

  nb::object record() {
    values_.clear();
    for (const Wanted &each : wanted_) values_.push_back(each.missing);
    walk_.expect('{');
    walk_.space();
    if (!walk_.takes('}')) {
      for (size_t n = 0; !field(n); ++n) continue;
    }
    given_.clear();
    for (const nb::object &value : values_) given_.push_back(value.ptr());
    PyObject *made = PyObject_Vectorcall(make_.ptr(), given_.data(), given_.size(), nullptr);
    if (made == nullptr) throw nb::python_error();
    return nb::steal(made);
  }

  // Read the n-th field; whether it is the last.
  bool field(size_t n) {
    if (n == fields_.size() && n < REMEMBERED_FIELDS) fields_.emplace_back();
    Field &known = n < fields_.size() ? fields_[n] : beyond_;
    if (known.head.empty() || !walk_.repeats(known.text)) read(known);
    if (!known.is_last) walk_.space();
    if (known.place != UNWANTED) values_[static_cast<size_t>(known.place)] = known.value;
    return known.is_last;
  }

  void read(Field &field) {
    const char *start = walk_.at();
    if (field.head.empty() || !walk_.repeats(field.head)) {
      field.place = place_of(walk_.key());
      walk_.colon();
      field.head = {start, static_cast<size_t>(walk_.at() - start)};
    }
    walk_.space();
    const std::string_view value = walk_.value();
    if (field.place != UNWANTED) {
      const size_t place = static_cast<size_t>(field.place);
      field.value = meanings_[place].find(value, wanted_[place].decode);
    }
    field.is_last = !walk_.more('}');
    field.text = {start, static_cast<size_t>(walk_.at() - start)};
  }

  int place_of(std::string_view key) const {
    for (size_t n = 0; n < wanted_.size(); ++n) {
      if (wanted_[n].key == key) return static_cast<int>(n);
    }
    return UNWANTED;
  }

  const std::vector<Wanted> &wanted_;
  const nb::object &make_;
  Walk walk_;
  std::vector<Meanings> meanings_;
  std::vector<Field> fields_;
  Field beyond_;
  std::vector<nb::object> values_;
  std::vector<PyObject *> given_;
};

using Wish = std::tuple<std::string, nb::object, nb::object>;

nb::object read_records(nb::bytes body, const std::string &list, const std::string &beside,
                        const std::vector<Wish> &wishes, const nb::object &make,
                        const nb::object &decode) {
  std::vector<Wanted> wanted;
  for (const auto &[key, decode_field, missing] : wishes) {
    wanted.push_back({key, decode_field, missing});
  }
  try {
    Reading reading(wanted, make, {body.c_str(), body.size()});
    return reading.document(list, beside, decode);
  } catch (const Unusual &) {
    return nb::none();
  }
}

} // namespace

void bind_records(nb::module_ &m) {
  m.def("read_records", &read_records, nb::arg("body"), nb::arg("list"), nb::arg("beside"),
        nb::arg("wishes"), nb::arg("make"), nb::arg("decode"));
}

} // namespace marey
