// SPDX-License-Identifier: GPL-2.0-or-later

#include "pickle.h"

#include "unusable.h"

#include <algorithm>
#include <array>
#include <stdexcept>
#include <utility>

namespace pwmlff {
namespace {

using Tag = PickleValue::Tag;

constexpr std::size_t MOST_VALUES = 1 << 22;
constexpr int MOST_DEPTH = 1000;    // of values in each other

constexpr unsigned char PROTO = 0x80, STOP = '.';

/// The stack machine of a pickle; a marker is a null pointer on the stack.
class Machine {
 public:
  Machine(std::string_view bytes, Pickle::Writer writer, std::deque<PickleValue> &values) :
      bytes(bytes), writer(writer), values(values)
  {
  }

  const PickleValue *run();

 private:
  // In the order of the table. NOLINTNEXTLINE(clang-analyzer-optin.performance.Padding)
  struct Operation {
    unsigned char code;
    void (*run)(Machine &machine);
    bool of_python = false;    // which torch does not write
  };
  static const Operation OPERATIONS[];

  /* ---- bytes ---- */

  std::string_view take(std::uint64_t n)
  {
    if (n > bytes.size() - position) fail("it ends too early");
    position += n;
    return bytes.substr(position - n, n);
  }

  std::uint64_t number(int n)
  {
    const std::string_view raw = take(n);
    std::uint64_t value = 0;
    for (int k = n; k-- > 0;) value = value << 8 | static_cast<unsigned char>(raw[k]);
    return value;
  }

  void integer(std::int64_t value) { push(Tag::integer).integer = value; }

  void text(int nbytes) { push(Tag::text).text = take(number(nbytes)); }

  /// @param nbytes  in which the length is told
  void long_integer(int nbytes)
  {
    const std::uint64_t length = number(nbytes);
    if (length > 8) {
      if (writer == Pickle::Writer::torch)
        fail("it has an integer of " + std::to_string(length) + " bytes, expected at most 8");
      push(Tag::text).text = take(length);
      return;
    }
    const auto n = static_cast<int>(length);
    std::uint64_t value = number(n);
    if (n > 0 && n < 8 && (value >> (8 * n - 1)) != 0) value |= ~std::uint64_t{0} << (8 * n);
    integer(static_cast<std::int64_t>(value));
  }

  void real()
  {
    take(8);
    push(Tag::real);
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

  /// A value or a marker.
  void drop()
  {
    if (stack.empty()) fail("it takes a value that is not there");
    stack.pop_back();
  }

  void twice()
  {
    stack.push_back(pop());
    stack.push_back(stack.back());
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

/// With the names of Python's pickletools.
constexpr Machine::Operation Machine::OPERATIONS[] = {
    {PROTO, [](Machine &m) { m.take(1); }},
    {0x95, [](Machine &m) { m.take(8); }},                                           // FRAME
    {'(', [](Machine &m) { m.stack.push_back(nullptr); }},                           // MARK
    {'N', [](Machine &m) { m.push(Tag::none); }},                                    // NONE
    {0x88, [](Machine &m) { m.push(Tag::boolean).integer = 1; }},                    // NEWTRUE
    {0x89, [](Machine &m) { m.push(Tag::boolean); }},                                // NEWFALSE
    {'J', [](Machine &m) { m.integer(static_cast<std::int32_t>(m.number(4))); }},    // BININT
    {'K', [](Machine &m) { m.integer(static_cast<std::int64_t>(m.number(1))); }},    // BININT1
    {'M', [](Machine &m) { m.integer(static_cast<std::int64_t>(m.number(2))); }},    // BININT2
    {0x8a, [](Machine &m) { m.long_integer(1); }},                                   // LONG1
    {0x8b, [](Machine &m) { m.long_integer(4); }, true},                             // LONG4
    {'G', [](Machine &m) { m.real(); }},                                             // BINFLOAT
    {'X', [](Machine &m) { m.text(4); }},                                            // BINUNICODE
    {'T', [](Machine &m) { m.text(4); }},                                            // BINSTRING
    {'B', [](Machine &m) { m.text(4); }},                                            // BINBYTES
    {0x8c, [](Machine &m) { m.text(1); }},                                     // SHORT_BINUNICODE
    {'U', [](Machine &m) { m.text(1); }},                                      // SHORT_BINSTRING
    {'C', [](Machine &m) { m.text(1); }},                                      // SHORT_BINBYTES
    {0x8d, [](Machine &m) { m.text(8); }, true},                               // BINUNICODE8
    {0x8e, [](Machine &m) { m.text(8); }, true},                               // BINBYTES8
    {0x96, [](Machine &m) { m.text(8); }, true},                               // BYTEARRAY8
    {'c', [](Machine &m) { m.global(); }},                                     // GLOBAL
    {0x93, [](Machine &m) { m.collect(Tag::object, m.last(2)); }},             // STACK_GLOBAL
    {']', [](Machine &m) { m.push(Tag::list); }},                              // EMPTY_LIST
    {0x8f, [](Machine &m) { m.push(Tag::list); }},                             // EMPTY_SET
    {')', [](Machine &m) { m.push(Tag::list); }},                              // EMPTY_TUPLE
    {'}', [](Machine &m) { m.push(Tag::dict); }},                              // EMPTY_DICT
    {'t', [](Machine &m) { m.collect(Tag::list, m.since_mark()); }},           // TUPLE
    {0x91, [](Machine &m) { m.collect(Tag::list, m.since_mark()); }, true},    // FROZENSET
    {0x85, [](Machine &m) { m.collect(Tag::list, m.last(1)); }},               // TUPLE1
    {0x86, [](Machine &m) { m.collect(Tag::list, m.last(2)); }},               // TUPLE2
    {0x87, [](Machine &m) { m.collect(Tag::list, m.last(3)); }},               // TUPLE3
    {'a', [](Machine &m) { m.add(m.last(1)); }},                               // APPEND
    {'s', [](Machine &m) { m.add(m.last(2)); }},                               // SETITEM
    {'e', [](Machine &m) { m.add(m.since_mark()); }},                          // APPENDS
    {'u', [](Machine &m) { m.add(m.since_mark()); }},                          // SETITEMS
    {0x90, [](Machine &m) { m.add(m.since_mark()); }},                         // ADDITEMS
    {'b', [](Machine &m) { m.add(m.last(1)); }},                               // BUILD
    {'Q', [](Machine &m) { m.collect(Tag::persistent, m.last(1)); }},          // BINPERSID
    {'R', [](Machine &m) { m.collect(Tag::object, m.last(2)); }},              // REDUCE
    {0x81, [](Machine &m) { m.collect(Tag::object, m.last(2)); }},             // NEWOBJ
    {0x92, [](Machine &m) { m.collect(Tag::object, m.last(3)); }, true},       // NEWOBJ_EX
    {'h', [](Machine &m) { m.get(m.number(1)); }},                             // BINGET
    {'j', [](Machine &m) { m.get(m.number(4)); }},                             // LONG_BINGET
    {'q', [](Machine &m) { m.put(m.number(1)); }},                             // BINPUT
    {'r', [](Machine &m) { m.put(m.number(4)); }},                             // LONG_BINPUT
    {0x94, [](Machine &m) { m.put(m.memo.size()); }},                          // MEMOIZE
    {'0', [](Machine &m) { m.drop(); }, true},                                 // POP
    {'1', [](Machine &m) { m.since_mark(); }, true},                           // POP_MARK
    {'2', [](Machine &m) { m.twice(); }, true},                                // DUP
};

const PickleValue *Machine::run()
{
  static const auto by_code = [] {
    std::array<const Operation *, 256> result{};
    for (const Operation &operation : OPERATIONS) result[operation.code] = &operation;
    return result;
  }();
  if (bytes.empty() || static_cast<unsigned char>(bytes[0]) != PROTO)
    fail("it is no pickle of protocol 2 or later");
  for (;;) {
    const auto code = static_cast<unsigned char>(take(1)[0]);
    if (code == STOP) return pop();
    const Operation *const operation = by_code[code];
    if (!operation || (operation->of_python && writer == Pickle::Writer::torch))
      fail("it has operation " + std::to_string(code) + ", which torch does not write");
    operation->run(*this);
  }
}

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
