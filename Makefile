# The daily commands; CMake does the work. BUILD: the build folder.
BUILD ?= build

all: $(BUILD)/CMakeCache.txt
	cmake --build $(BUILD)

$(BUILD)/CMakeCache.txt:
	cmake --preset release

# Without real weights; scripts/test.sh adds those, and sanitizers.
test: all
	ctest --test-dir $(BUILD) --output-on-failure -LE model

# Every op x type x instruction set of this machine against the scalar oracle.
check-ops: all
	ctest --test-dir $(BUILD) --output-on-failure -R 'gem\.(ops|quant)'

bench: all
	$(BUILD)/gem-bench --model gemma-3-270m
	$(BUILD)/gem-bench --model qwen2.5-coder-0.5b

lint:
	shellcheck -S warning scripts/*.sh tests/scripts/*.sh tests/evidence/*.sh .ci/run
	git ls-files '*.c' '*.h' | xargs clang-format --dry-run -Werror

fmt:
	git ls-files '*.c' '*.h' | xargs clang-format -i

install: all
	cmake --install $(BUILD)

clean:
	cmake --build $(BUILD) --target clean

.PHONY: all test check-ops bench lint fmt install clean
