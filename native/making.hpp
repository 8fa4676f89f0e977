// Making many objects of one class; see making.cpp.
#pragma once

#include <nanobind/nanobind.h>

namespace marey {

void bind_making(nanobind::module_ &m);

} // namespace marey
