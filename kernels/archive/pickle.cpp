// SPDX-License-Identifier: GPL-2.0-or-later

#include "pickle.h"

#include "unusable.h"

#include <algorithm>
#include <bit>
#include <stdexcept>
#include <utility>

namespace pwmlff {
namespace {

using Tag = PickleValue::Tag;

constexpr std::size_t MOST_VALUES = 1 << 22;
constexpr int MOST_DEPTH = 1000;    // of values in each other

[[noreturn]] void fail(const std::string &what) { throw std::runtime_error(what); }

// Operations, with the names of Python's pickletools.
enum Operation : unsigned char {
  MARK = '(',
  STOP = '.',
  BININT = 'J',
  BININT1 = 'K',
  BININT2 = 'M',
  NONE = 'N',
  BINPERSID = 'Q',
  REDUCE = 'R',
  BINSTRING = 'T',
  SHORT_BINSTRING = 'U',
  BINUNICODE = 'X',
  APPEND = 'a',
  BUILD = 'b',
  GLOBAL = 'c',
  APPENDS = 'e',
  BINGET = 'h',
  LONG_BINGET = 'j',
  BINPUT = 'q',
  LONG_BINPUT = 'r',
  SETITEM = 's',
  TUPLE = 't',
  EMPTY_TUPLE = ')',
  SETITEMS = 'u',
  EMPTY_DICT = '}',
  EMPTY_LIST = ']',
  BINFLOAT = 'G',
  BINBYTES = 'B',
  SHORT_BINBYTES = 'C',
  PROTO = 0x80,
  NEWOBJ = 0x81,
  TUPLE1 = 0x85,
  TUPLE2 = 0x86,
  TUPLE3 = 0x87,
  NEWTRUE = 0x88,
  NEWFALSE = 0x89,
  LONG1 = 0x8a,
  SHORT_BINUNICODE = 0x8c,
  EMPTY_SET = 0x8f,
  ADDITEMS = 0x90,
  STACK_GLOBAL = 0x93,
  MEMOIZE = 0x94,
  FRAME = 0x95,

  // Of Python alone.
  POP = '0',
  POP_MARK = '1',
  DUP = '2',
  LONG4 = 0x8b,
  BINUNICODE8 = 0x8d,
  BINBYTES8 = 0x8e,
  FROZENSET = 0x91,
  NEWOBJ_EX = 0x92,
  BYTEARRAY8 = 0x96
};

/// The stack machine of a pickle; a marker is a null pointer on the stack.
class Machine {
 public:
  Machine(std::string_view bytes, Pickle::Writer writer, std::deque<PickleValue> &values) :
      bytes(bytes), writer(writer), values(values)
  {
  }

  const PickleValue *run()
  {
    if (bytes.empty() || static_cast<unsigned char>(bytes[0]) != PROTO)
      fail("it is no pickle of protocol 2 or later");
    for (;;) {
      const auto operation = static_cast<unsigned char>(take(1)[0]);
      if (operation == STOP) return pop();
      if (!(writer == Pickle::Writer::python && python_step(operation))) step(operation);
    }
  }

 private:
  /// Do what Python alone writes; returns whether it is that.
  bool python_step(unsigned char operation)
  {
    switch (operation) {
      case POP:
        if (stack.empty()) fail("it takes a value that is not there");
        stack.pop_back();
        return true;
      case POP_MARK:
        since_mark();
        return true;
      case DUP:
        stack.push_back(pop());
        stack.push_back(stack.back());
        return true;
      case LONG1:
        long_integer(unsigned_integer(1));
        return true;
      case LONG4:
        long_integer(unsigned_integer(4));
        return true;
      case BINUNICODE8:
      case BINBYTES8:
      case BYTEARRAY8:
        push(Tag::text).text = take(unsigned_integer(8));
        return true;
      case FROZENSET:
        collect(Tag::list, since_mark());
        return true;
      case NEWOBJ_EX:
        call(3);
        return true;
      default:
        return false;
    }
  }

  void step(unsigned char operation)
  {
    switch (operation) {
      case PROTO:
        take(1);
        break;
      case FRAME:
        take(8);
        break;
      case MARK:
        stack.push_back(nullptr);
        break;
      case NONE:
        push(Tag::none);
        break;
      case NEWTRUE:
        push(Tag::boolean).integer = 1;
        break;
      case NEWFALSE:
        push(Tag::boolean);
        break;
      case BININT:
        push(Tag::integer).integer = static_cast<std::int32_t>(unsigned_integer(4));
        break;
      case BININT1:
        push(Tag::integer).integer = static_cast<std::int64_t>(unsigned_integer(1));
        break;
      case BININT2:
        push(Tag::integer).integer = static_cast<std::int64_t>(unsigned_integer(2));
        break;
      case LONG1: {
        const std::uint64_t n = unsigned_integer(1);
        if (n > 8) fail("it has an integer of " + std::to_string(n) + " bytes, expected at most 8");
        long_integer(n);
        break;
      }
      case BINFLOAT:
        real();
        break;
      case BINUNICODE:
      case BINSTRING:
      case BINBYTES:
        push(Tag::text).text = take(unsigned_integer(4));
        break;
      case SHORT_BINUNICODE:
      case SHORT_BINSTRING:
      case SHORT_BINBYTES:
        push(Tag::text).text = take(unsigned_integer(1));
        break;
      case GLOBAL:
        global();
        break;
      case STACK_GLOBAL:
        call(2);
        break;
      case EMPTY_LIST:
      case EMPTY_SET:
      case EMPTY_TUPLE:
        push(Tag::list);
        break;
      case EMPTY_DICT:
        push(Tag::dict);
        break;
      case TUPLE:
        collect(Tag::list, since_mark());
        break;
      case TUPLE1:
        collect(Tag::list, last(1));
        break;
      case TUPLE2:
        collect(Tag::list, last(2));
        break;
      case TUPLE3:
        collect(Tag::list, last(3));
        break;
      case APPEND:
        add(last(1));
        break;
      case SETITEM:
        add(last(2));
        break;
      case APPENDS:
      case SETITEMS:
      case ADDITEMS:
        add(since_mark());
        break;
      case BINPERSID:
        collect(Tag::persistent, last(1));
        break;
      case REDUCE:
      case NEWOBJ:
        call(2);
        break;
      case BUILD:
        add(last(1));
        break;
      case BINGET:
        get(unsigned_integer(1));
        break;
      case LONG_BINGET:
        get(unsigned_integer(4));
        break;
      case BINPUT:
        put(unsigned_integer(1));
        break;
      case LONG_BINPUT:
        put(unsigned_integer(4));
        break;
      case MEMOIZE:
        put(memo.size());
        break;
      default:
        fail("it has operation " + std::to_string(operation) + ", which torch does not write");
    }
  }

  /* ---- bytes ---- */

  std::string_view take(std::uint64_t n)
  {
    if (n > bytes.size() - position) fail("it ends too early");
    position += n;
    return bytes.substr(position - n, n);
  }

  std::uint64_t unsigned_integer(int n)
  {
    const std::string_view raw = take(n);
    std::uint64_t value = 0;
    for (int k = n; k-- > 0;) value = value << 8 | static_cast<unsigned char>(raw[k]);
    return value;
  }

  void long_integer(std::uint64_t nbytes)
  {
    if (nbytes > 8) {
      push(Tag::text).text = take(nbytes);
      return;
    }
    const auto n = static_cast<int>(nbytes);
    std::uint64_t value = unsigned_integer(n);
    if (n > 0 && n < 8 && (value >> (8 * n - 1)) != 0) value |= ~std::uint64_t{0} << (8 * n);
    push(Tag::integer).integer = static_cast<std::int64_t>(value);
  }

  void real()
  {
    std::uint64_t value = 0;
    for (const char byte : take(8)) value = value << 8 | static_cast<unsigned char>(byte);
    push(Tag::real).real = std::bit_cast<double>(value);
  }

  void global()
  {
    const std::size_t first = bytes.find('\n', position);
    const std::size_t second =
        first == std::string_view::npos ? first : bytes.find('\n', first + 1);
    if (second == std::string_view::npos) fail("it ends too early");
    push(Tag::global).text = take(second - position);
    take(1);
  }

  /* ---- stack and memo ---- */

  PickleValue &push(Tag tag)
  {
    if (values.size() >= MOST_VALUES)
      throw Unusable("a table in it has more than " + std::to_string(MOST_VALUES) +
                     " values; keep large arrays in tensors");
    PickleValue &value = values.emplace_back();
    value.tag = tag;
    value.index = static_cast<std::uint32_t>(values.size() - 1);
    stack.push_back(&value);
    return value;
  }

  PickleValue *pop()
  {
    if (stack.empty() || !stack.back()) fail("it takes a value that is not there");
    PickleValue *const value = stack.back();
    stack.pop_back();
    return value;
  }

  using Items = std::vector<const PickleValue *>;

  Items last(int n)
  {
    Items items(n);
    while (n-- > 0) items[n] = pop();
    return items;
  }

  Items since_mark()
  {
    std::size_t mark = stack.size();
    while (mark > 0 && stack[mark - 1]) --mark;
    if (mark == 0) fail("it goes back to a mark that is not there");
    Items items(stack.begin() + static_cast<std::ptrdiff_t>(mark), stack.end());
    stack.resize(mark - 1);
    return items;
  }

  void collect(Tag tag, Items items) { push(tag).items = std::move(items); }

  void call(int n) { collect(Tag::object, last(n)); }

  void add(const Items &items)
  {
    PickleValue *const container = pop();
    container->items.insert(container->items.end(), items.begin(), items.end());
    stack.push_back(container);
  }

  void put(std::uint64_t place)
  {
    // Writers count from 0; a gap would be an order to take memory.
    if (place > memo.size()) fail("it remembers a value out of turn");
    PickleValue *const value = pop();
    stack.push_back(value);
    if (place == memo.size()) memo.push_back(value);
    else memo[place] = value;
  }

  void get(std::uint64_t place)
  {
    if (place >= memo.size()) fail("it takes a value that is not there");
    stack.push_back(memo[place]);
  }

  std::string_view bytes;
  Pickle::Writer writer;
  std::deque<PickleValue> &values;
  std::size_t position = 0;
  std::vector<PickleValue *> stack, memo;
};

}    // namespace

Pickle::Pickle(std::string_view bytes, Writer writer) : root_(Machine(bytes, writer, values_).run())
{
}

void Pickle::check_depth() const
{
  constexpr int unseen = -1, begun = -2;
  std::vector<int> depths(values_.size(), unseen);    // of what is in a value, once that is known
  struct Step {
    const PickleValue *value;
    std::size_t next;    // item to look at
  };
  std::vector<Step> path;
  for (const PickleValue &start : values_) {
    if (depths[start.index] != unseen) continue;
    path.assign(1, {&start, 0});
    while (!path.empty()) {
      const auto [value, next] = path.back();
      depths[value->index] = begun;
      if (next < value->items.size()) {
        ++path.back().next;
        const PickleValue &item = *value->items[next];
        if (depths[item.index] == begun) fail("a value is in itself");
        if (depths[item.index] == unseen) path.push_back({&item, 0});
        continue;
      }
      int depth = 0;
      for (const PickleValue *const item : value->items)
        depth = std::max(depth, depths[item->index] + 1);
      if (depth > MOST_DEPTH)
        throw Unusable("its values are nested more than " + std::to_string(MOST_DEPTH) + " deep");
      depths[value->index] = depth;
      path.pop_back();
    }
  }
}

}    // namespace pwmlff
