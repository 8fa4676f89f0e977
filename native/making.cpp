// Many small objects of a frozen dataclass with slots, filled without a call for each field.

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>
#include <structmember.h>

#include "making.hpp"

namespace nb = nanobind;

namespace marey {
namespace {

constexpr const char *NAME = "marey.Maker";

struct Slot {
  Py_ssize_t offset;
  nb::object missing;
};

struct Maker {
  nb::object cls;
  std::vector<Slot> slots;
  size_t needed;
};

// Where objects of the class keep this field; only a slot of an object has such a place.
Py_ssize_t offset_of(const nb::object &cls, const std::string &field) {
  const nb::object found = cls.attr(field.c_str());
  if (!Py_IS_TYPE(found.ptr(), &PyMemberDescr_Type)) throw nb::type_error("not a slot");
  const PyMemberDef *member = reinterpret_cast<PyMemberDescrObject *>(found.ptr())->d_member;
  if (member->type != T_OBJECT_EX) throw nb::type_error("not a slot of an object");
  return member->offset;
}

// The class itself answers a call with names, or with too many or too few values.
PyObject *make(PyObject *self, PyObject *const *values, Py_ssize_t given, PyObject *names) {
  const auto *maker = static_cast<const Maker *>(PyCapsule_GetPointer(self, NAME));
  if (maker == nullptr) return nullptr;
  const size_t count = static_cast<size_t>(given);
  if (names != nullptr || count < maker->needed || count > maker->slots.size()) {
    return PyObject_Vectorcall(maker->cls.ptr(), values, count, names);
  }
  auto *type = reinterpret_cast<PyTypeObject *>(maker->cls.ptr());
  PyObject *made = type->tp_alloc(type, 0);
  if (made == nullptr) return nullptr;
  for (size_t n = 0; n < maker->slots.size(); ++n) {
    PyObject *value = n < count ? values[n] : maker->slots[n].missing.ptr();
    Py_INCREF(value);
    *reinterpret_cast<PyObject **>(reinterpret_cast<char *>(made) + maker->slots[n].offset) = value;
  }
  // It cannot be changed, and holds nothing that knows of it: it is in no cycle that the collector
  // of cycles would have to look for.
  PyObject_GC_UnTrack(made);
  return made;
}

PyMethodDef MAKE = {"make", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(make)),
                    METH_FASTCALL | METH_KEYWORDS, nullptr};

nb::object new_maker(nb::object cls, const std::vector<std::string> &fields,
                     const std::vector<nb::object> &defaults) {
  if (!PyType_Check(cls.ptr()) || defaults.size() > fields.size()) {
    throw nb::type_error("a class, its fields and the defaults of the last of them are needed");
  }
  auto maker = std::make_unique<Maker>(Maker{cls, {}, fields.size() - defaults.size()});
  for (size_t n = 0; n < fields.size(); ++n) {
    const nb::object missing = n < maker->needed ? nb::none() : defaults[n - maker->needed];
    maker->slots.push_back({offset_of(cls, fields[n]), missing});
  }
  const nb::capsule owner(maker.release(), NAME,
                          [](void *p) noexcept { delete static_cast<Maker *>(p); });
  return nb::steal(PyCFunction_NewEx(&MAKE, owner.ptr(), nullptr));
}

} // namespace

void bind_making(nb::module_ &m) {
  m.def("new_maker", &new_maker, nb::arg("cls"), nb::arg("fields"), nb::arg("defaults"));
}

} // namespace marey
