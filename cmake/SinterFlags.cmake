# Compiler flags: one interface target for all project files, and per-file instruction sets for the
# kernels that are named after one.

add_library(sinter_flags INTERFACE)
target_compile_definitions(sinter_flags INTERFACE _POSIX_C_SOURCE=200809L)
# A switch that lacks a case is an error in every build, so that a new row of a table is not
# forgotten.
target_compile_options(sinter_flags INTERFACE
    $<$<COMPILE_LANGUAGE:C>:-Wall -Wextra -Wpedantic -Wshadow -Wstrict-prototypes
    -Wmissing-prototypes -Werror=switch>)
if(SINTER_WERROR)
    target_compile_options(sinter_flags INTERFACE -Werror)
endif()
if(SINTER_SANITIZE)
    set(SINTER_SANITIZERS address,undefined)
    if(SINTER_SANITIZE STREQUAL "thread")
        set(SINTER_SANITIZERS thread,undefined)
    endif()
    target_compile_options(sinter_flags INTERFACE -fsanitize=${SINTER_SANITIZERS}
        -fno-sanitize-recover=all -fno-omit-frame-pointer)
    target_link_options(sinter_flags INTERFACE -fsanitize=${SINTER_SANITIZERS})
endif()

# OpenMP, or without it at least POSIX threads; the names are those of SINTER_PRIVATE_LIBS.
add_library(sinter_threads INTERFACE)
if(SINTER_OPENMP)
    find_package(OpenMP REQUIRED COMPONENTS C)
    target_link_libraries(sinter_threads INTERFACE OpenMP::OpenMP_C)
    set(SINTER_THREAD_LIBS ${OpenMP_C_LIB_NAMES})
else()
    find_package(Threads REQUIRED)
    target_link_libraries(sinter_threads INTERFACE Threads::Threads)
    target_compile_options(sinter_threads INTERFACE -Wno-unknown-pragmas)
    set(SINTER_THREAD_LIBS pthread)
endif()

# Only files whose names end in _avx2.c, _avxvnni.c, _avx512.c and _vnni.c (AVX-512 VNNI) may use
# these instructions; they are entered after a run-time check.
set(SINTER_FLAGS_avx2 -mavx2 -mfma -mf16c)
set(SINTER_FLAGS_avxvnni ${SINTER_FLAGS_avx2} -mavxvnni)
set(SINTER_FLAGS_avx512 ${SINTER_FLAGS_avx2} -mavx512f -mavx512bw -mavx512dq -mavx512vl)
set(SINTER_FLAGS_vnni ${SINTER_FLAGS_avx512} -mavx512vnni)

# For tests on machines without AVX-512: what these files do with it is done in C, and the library
# takes every machine for one that has it.
if(SINTER_EMULATE_AVX512)
    set(emulated ${PROJECT_SOURCE_DIR}/tests/emulated)
    set(SINTER_FLAGS_avx512 ${SINTER_FLAGS_avx2} -I${emulated} -iquote${emulated} -D__AVX512F__
        -DTARGET= -Wno-psabi)
    set(SINTER_FLAGS_vnni ${SINTER_FLAGS_avx512})
endif()

# These files are many instances of inlined functions. With all checks and all debug information,
# compiling one of them would take minutes.
if(SINTER_SANITIZE STREQUAL "thread")
    set(SINTER_EXTRA_SANITIZE -fno-sanitize=undefined)
elseif(SINTER_SANITIZE)
    set(SINTER_EXTRA_SANITIZE -g1 -fno-sanitize=null,alignment,pointer-overflow,object-size)
endif()

# The strides of rows of codes are never 1: GCC would make a second copy of each loop for that case.
if(CMAKE_C_COMPILER_ID STREQUAL "GNU")
    set(SINTER_EXTRA_CODES -fno-version-loops-for-strides)
endif()

# Loops over elementwise functions become vectors only where nobody asks which of them raised a
# floating-point exception or set errno; values stay the same.
set(SINTER_ELTWISE -fno-trapping-math -fno-math-errno)

function(sinter_isa_flags)
    foreach(file ${ARGN})
        cmake_path(GET file STEM name)
        if(name MATCHES "^eltwise_")
            set_source_files_properties(${file} PROPERTIES COMPILE_OPTIONS "${SINTER_ELTWISE}")
        endif()
        string(REGEX REPLACE ".*_" "" isa ${name})
        if(DEFINED SINTER_FLAGS_${isa})
            set(flags ${SINTER_FLAGS_${isa}} ${SINTER_EXTRA_SANITIZE})
            if(name MATCHES "^eltwise_")
                list(APPEND flags ${SINTER_ELTWISE})
            endif()
            if(name MATCHES "^(attention_decode|matmul_rows|matmul_columns)_avx")
                list(APPEND flags ${SINTER_EXTRA_CODES})
            endif()
            set_source_files_properties(${file} PROPERTIES COMPILE_OPTIONS "${flags}")
        endif()
    endforeach()
endfunction()
