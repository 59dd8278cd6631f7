# cJSON, for graph_runner and the tests only: cJSON::cJSON.

find_path(CJSON_INCLUDE_DIR cjson/cJSON.h)
find_library(CJSON_LIBRARY cjson)
mark_as_advanced(CJSON_INCLUDE_DIR CJSON_LIBRARY)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(cJSON REQUIRED_VARS CJSON_LIBRARY CJSON_INCLUDE_DIR
    REASON_FAILURE_MESSAGE "on Debian or Ubuntu: apt-get install libcjson-dev, or configure with \
-DSINTER_BUILD_TOOLS=OFF -DBUILD_TESTING=OFF")
if(cJSON_FOUND AND NOT TARGET cJSON::cJSON)
    add_library(cJSON::cJSON INTERFACE IMPORTED)
    target_include_directories(cJSON::cJSON SYSTEM INTERFACE ${CJSON_INCLUDE_DIR})
    target_link_libraries(cJSON::cJSON INTERFACE ${CJSON_LIBRARY})
endif()
