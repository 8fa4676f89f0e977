// Blocks of Chrome-trace events → raw columns. The contract is readers/raw.py; the pure-Python
// parser beside it gives the same values.

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "numbers.hpp"
#include "records.hpp"
#include "simdjson.h"
#include "texts.hpp"

namespace nb = nanobind;
namespace sj = simdjson;

namespace marey {

constexpr int64_t NO_TIME = std::numeric_limits<int64_t>::min();
constexpr std::string_view PHASES = "XBEsftiIM";

template <typename T> nb::object to_numpy(std::vector<T> &&values) {
  auto *kept = new std::vector<T>(std::move(values));
  nb::capsule owner(kept, [](void *p) noexcept { delete static_cast<std::vector<T> *>(p); });
  const size_t shape[1] = {kept->size()};
  return nb::cast(nb::ndarray<nb::numpy, T>(kept->data(), 1, shape, owner));
}

struct Sparse {
  std::vector<int32_t> rows;
  std::vector<int64_t> values;

  void set(int32_t row, int64_t value) {
    if (!rows.empty() && rows.back() == row) {
      values.back() = value;
    } else {
      rows.push_back(row);
      values.push_back(value);
    }
  }
  void unset(int32_t row) {
    if (!rows.empty() && rows.back() == row) {
      rows.pop_back();
      values.pop_back();
    }
  }
};

enum class Use : uint8_t { number, text, json };

struct Wanted {
  std::string key;
  Use use;
  uint64_t ends;  // first and last bytes together, to tell keys of one length apart
};

// The first four and the last four bytes of a key (of at least four), or all of a shorter one.
uint64_t ends_of(std::string_view key) {
  uint32_t head = 0, tail = 0;
  if (key.size() >= 4) {
    std::memcpy(&head, key.data(), 4);
    std::memcpy(&tail, key.data() + key.size() - 4, 4);
  } else {
    std::memcpy(&head, key.data(), key.size());
  }
  return static_cast<uint64_t>(head) << 32 | tail;
}

// A pid or a tid: a number, a text, or neither.
struct Place {
  enum class Kind : uint8_t { none, number, text } kind = Kind::none;
  int64_t value = 0;
  bool operator<(const Place &o) const { return std::tie(kind, value) < std::tie(o.kind, o.value); }
  bool operator==(const Place &o) const { return kind == o.kind && value == o.value; }
};
using Lane = std::pair<Place, Place>;

std::string_view trimmed(std::string_view token) {
  while (!token.empty() && static_cast<unsigned char>(token.back()) <= ' ') token.remove_suffix(1);
  return token;
}

// The columns of one block while they grow.
struct Columns {
  std::vector<uint8_t> phase;
  std::vector<int32_t> category, name, lane;
  std::vector<int64_t> start_ns, dur_ns;
  std::vector<Sparse> args;
  Sparse id;
};

class BlockParser {
public:
  BlockParser(const std::vector<std::string> &numbers, const std::vector<std::string> &texts,
              const std::vector<std::string> &jsons, std::vector<std::string> prefixes)
      : prefixes_(std::move(prefixes)) {
    for (const auto &key : numbers) wanted_.push_back({key, Use::number, ends_of(key)});
    for (const auto &key : texts) wanted_.push_back({key, Use::text, ends_of(key)});
    for (const auto &key : jsons) wanted_.push_back({key, Use::json, ends_of(key)});
    for (size_t n = 0; n < wanted_.size(); ++n) {
      by_length_.resize(std::max(by_length_.size(), wanted_[n].key.size() + 1));
      by_length_[wanted_[n].key.size()].push_back(static_cast<uint8_t>(n));
    }
    empty_ = code_of("");
  }

  nb::object parse(nb::handle buffer, size_t start, size_t stop) {
    if (!PyByteArray_Check(buffer.ptr())) throw nb::type_error("a bytearray is needed");
    const size_t capacity = static_cast<size_t>(PyByteArray_Size(buffer.ptr()));
    if (start > stop || stop + sj::SIMDJSON_PADDING > capacity) {
      throw nb::value_error("the text needs padding after its end");
    }
    const char *text = PyByteArray_AsString(buffer.ptr()) + start;
    Columns columns;
    columns.args.resize(wanted_.size());
    bool good = false;
    {
      nb::gil_scoped_release unlocked;
      good = fill(columns, text, stop - start, capacity - start);
    }
    return good ? nb::object(give(columns)) : nb::none();
  }

  nb::list texts() const {
    nb::list all;
    for (size_t n = 0; n < codes_.size(); ++n) {
      const std::string &text = codes_.text(n);
      all.append(nb::steal(PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()),
                                                "surrogatepass")));
    }
    return all;
  }

  nb::list lanes() const {
    nb::list all;
    for (const Lane &lane : lanes_) {
      all.append(nb::make_tuple(place_object(lane.first), place_object(lane.second)));
    }
    return all;
  }

private:
  bool fill(Columns &columns, const char *text, size_t length, size_t capacity) {
    try {
      auto document = parser_.iterate(text, length, capacity);
      sj::ondemand::array events = document.get_array();
      for (sj::ondemand::value event : events) {
        if (event.type() == sj::ondemand::json_type::object) add(columns, event.get_object());
      }
      return document.value_unsafe().at_end();
    } catch (const sj::simdjson_error &) {
      return false;
    } catch (const NotJson &) {
      return false;
    }
  }

  void add(Columns &columns, sj::ondemand::object event) {
    const int32_t row = static_cast<int32_t>(columns.phase.size());
    char phase = 0;
    int32_t name = empty_, category = empty_;
    int64_t start_ns = NO_TIME, dur_ns = 0;
    Lane lane;
    jsons_.clear();
    for (auto field : event) {
      const std::string_view key = field.escaped_key();
      sj::ondemand::value value = field.value();
      switch (key.size()) {
      case 2:
        if (key == "ph") phase = phase_of(value);
        else if (key == "ts") start_ns = time_of(value, NO_TIME);
        else if (key == "id") set_number(columns.id, row, value);
        break;
      case 3:
        if (key == "cat") category = text_of(value);
        else if (key == "pid") lane.first = place_of(value);
        else if (key == "tid") lane.second = place_of(value);
        else if (key == "dur") dur_ns = time_of(value, 0);
        break;
      case 4:
        if (key == "name") name = text_of(value);
        else if (key == "args") add_args(columns, row, value);
        break;
      default:
        break;
      }
    }
    if (phase == 0) {
      drop(columns, row);
      return;
    }
    columns.phase.push_back(static_cast<uint8_t>(phase));
    columns.category.push_back(category);
    columns.name.push_back(name);
    columns.lane.push_back(lane_code(lane));
    columns.start_ns.push_back(start_ns);
    columns.dur_ns.push_back(std::max<int64_t>(dur_ns, 0));
    if (!jsons_.empty() && communicates(name)) {
      for (const auto &[column, json] : jsons_) columns.args[column].set(row, code_of(json));
    }
  }

  void drop(Columns &columns, int32_t row) {
    columns.id.unset(row);
    for (Sparse &sparse : columns.args) sparse.unset(row);
  }

  void add_args(Columns &columns, int32_t row, sj::ondemand::value value) {
    if (value.type() != sj::ondemand::json_type::object) return;
    for (auto field : value.get_object()) {
      const std::string_view key = field.escaped_key();
      if (key.size() >= by_length_.size()) continue;
      const auto &candidates = by_length_[key.size()];
      if (candidates.empty()) continue;
      const uint64_t ends = ends_of(key);
      for (const uint8_t n : candidates) {
        if (wanted_[n].ends != ends || wanted_[n].key != key) continue;
        sj::ondemand::value found = field.value();
        Sparse &column = columns.args[n];
        if (wanted_[n].use == Use::number) set_number(column, row, found);
        else if (wanted_[n].use == Use::text) set_text(column, row, found);
        else jsons_.emplace_back(n, raw_of(found));
        break;
      }
    }
  }

  static std::string_view raw_of(sj::ondemand::value &value) {
    return trimmed(value.raw_json().value());
  }

  static std::string_view token_of(sj::ondemand::value &value) {
    return trimmed(value.raw_json_token());
  }

  // Whether a token is a number; throws where it is no JSON at all, which skipping would not see.
  static bool is_number(std::string_view token) {
    if (token.empty()) throw NotJson();
    const char first = token[0];
    if (is_digit(first) || first == '-') return true;
    if (first == '"' || first == '{' || first == '[') return false;
    if (token == "null" || token == "true" || token == "false") return false;
    throw NotJson();
  }

  static bool is_string(std::string_view token) { return !token.empty() && token[0] == '"'; }

  static char phase_of(sj::ondemand::value &value) {
    const std::string_view token = token_of(value);
    if (token.size() != 3 || token[0] != '"') return 0;
    return PHASES.find(token[1]) == std::string_view::npos ? 0 : token[1];
  }

  static int64_t time_of(sj::ondemand::value &value, int64_t missing) {
    const std::string_view token = token_of(value);
    return is_number(token) ? time_ns(token, missing) : missing;
  }

  // A string's code by the text as written: an escape is undone once per spelling.
  int32_t string_code(sj::ondemand::value &value, std::string_view token) {
    const uint64_t hash = hash_text(token);
    int32_t code = spellings_.find(token, hash);
    if (code < 0) {
      code = code_of(value.get_string(true).value());
      spellings_.insert(token, hash, code);
    }
    return code;
  }

  int32_t code_of(std::string_view text) {
    const uint64_t hash = hash_text(text);
    int32_t code = codes_.find(text, hash);
    if (code < 0) {
      code = static_cast<int32_t>(codes_.size());
      codes_.insert(text, hash, code);
    }
    return code;
  }

  // A string, or the digits of a whole number; the empty text for anything else.
  int32_t text_of(sj::ondemand::value &value) {
    const std::string_view token = token_of(value);
    if (is_string(token)) return string_code(value, token);
    if (!is_number(token)) return empty_;
    const Digits digits(token);
    if (!digits.is_whole() || !digits.fits) return empty_;
    if (digits.negative && digits.whole > (uint64_t{1} << 63)) return empty_;
    return code_of(digits.whole == 0 ? std::string_view("0") : token);
  }

  void set_text(Sparse &column, int32_t row, sj::ondemand::value &value) {
    const int32_t code = text_of(value);
    if (code == empty_) column.unset(row);
    else column.set(row, code);
  }

  void set_number(Sparse &column, int32_t row, sj::ondemand::value &value) {
    const std::string_view token = token_of(value);
    std::optional<int64_t> number;
    if (is_number(token)) number = number_as_int(token);
    else if (is_string(token)) number = text_as_int(value.get_string(true).value());
    if (number) column.set(row, *number);
    else column.unset(row);
  }

  Place place_of(sj::ondemand::value &value) {
    const std::string_view token = token_of(value);
    if (is_string(token)) return {Place::Kind::text, string_code(value, token)};
    if (!is_number(token)) return {};
    const Digits digits(token);
    if (!digits.is_whole()) return {};
    const auto number = signed_whole(digits.negative, digits.fits, digits.whole);
    return number ? Place{Place::Kind::number, *number} : Place{};
  }

  int32_t lane_code(const Lane &lane) {
    const uint64_t mixed = static_cast<uint64_t>(lane.first.value) * 31 +
                           static_cast<uint64_t>(lane.second.value) * 0x9E3779B97F4A7C15ull;
    int32_t &recent = recent_lanes_[mixed >> 56];
    if (recent >= 0 && lanes_[static_cast<size_t>(recent)] == lane) return recent;
    const auto [found, is_new] = lane_codes_.try_emplace(lane, static_cast<int32_t>(lanes_.size()));
    if (is_new) lanes_.push_back(lane);
    return recent = found->second;
  }

  // Whether an event of this name communicates; asked once per name.
  bool communicates(int32_t name) {
    const size_t place = static_cast<size_t>(name);
    if (communicates_.size() <= place) communicates_.resize(codes_.size(), -1);
    if (communicates_[place] < 0) {
      const std::string &text = codes_.text(place);
      communicates_[place] = std::any_of(prefixes_.begin(), prefixes_.end(), [&](const auto &p) {
        return text.compare(0, p.size(), p) == 0;
      });
    }
    return communicates_[place] == 1;
  }

  nb::object place_object(const Place &place) const {
    if (place.kind == Place::Kind::none) return nb::none();
    if (place.kind == Place::Kind::number) return nb::int_(place.value);
    return nb::cast(codes_.text(static_cast<size_t>(place.value)));
  }

  nb::tuple give(Columns &columns) {
    nb::dict args;
    auto put = [&](const std::string &key, Sparse &sparse) {
      if (!sparse.rows.empty()) {
        args[key.c_str()] =
            nb::make_tuple(to_numpy(std::move(sparse.rows)), to_numpy(std::move(sparse.values)));
      }
    };
    put("id", columns.id);
    for (size_t n = 0; n < wanted_.size(); ++n) put(wanted_[n].key, columns.args[n]);
    return nb::make_tuple(to_numpy(std::move(columns.phase)), to_numpy(std::move(columns.category)),
                          to_numpy(std::move(columns.name)), to_numpy(std::move(columns.lane)),
                          to_numpy(std::move(columns.start_ns)), to_numpy(std::move(columns.dur_ns)),
                          args);
  }

  std::vector<Wanted> wanted_;
  std::vector<std::vector<uint8_t>> by_length_;
  std::vector<std::string> prefixes_;
  sj::ondemand::parser parser_;
  TextTable codes_, spellings_;
  int32_t empty_ = 0;
  std::vector<Lane> lanes_;
  std::map<Lane, int32_t> lane_codes_;
  std::vector<int32_t> recent_lanes_ = std::vector<int32_t>(256, -1);
  std::vector<int8_t> communicates_;
  std::vector<std::pair<uint8_t, std::string_view>> jsons_;
};

// Whether this processor can run the module that was built for AVX2.
bool has_avx2() {
#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi") &&
         __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("pclmul") &&
         __builtin_cpu_supports("popcnt");
#else
  return false;
#endif
}

} // namespace marey

NB_MODULE(MAREY_MODULE, m) {
  nb::class_<marey::BlockParser>(m, "BlockParser")
      .def(nb::init<const std::vector<std::string> &, const std::vector<std::string> &,
                    const std::vector<std::string> &, std::vector<std::string>>(),
           nb::arg("numbers"), nb::arg("texts"), nb::arg("jsons"), nb::arg("prefixes"))
      .def("parse", &marey::BlockParser::parse, nb::arg("buffer"), nb::arg("start"), nb::arg("stop"))
      .def("texts", &marey::BlockParser::texts)
      .def("lanes", &marey::BlockParser::lanes);
  m.def("has_avx2", &marey::has_avx2);
  marey::bind_records(m);
}
