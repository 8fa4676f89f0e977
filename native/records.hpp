// Reading a document's list of records; see records.cpp.
#pragma once

#include <nanobind/nanobind.h>

namespace marey {

void bind_records(nanobind::module_ &m);

} // namespace marey
