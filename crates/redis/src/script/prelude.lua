-- The environment of scripts. Runs once per VM, before any script, with Lua's own libraries as globals, which scripts
-- never see: they see `environment`, behind which everything is read-only.
--
-- Standard functions are replaced where they would let a script swallow a stop signal (pcall, xpcall, coroutines), see an
-- address (tostring, next), change what other scripts see (rawset, table functions on libraries), or run for long without
-- executing instructions (table functions, string.rep). Functions that check arguments here use the standard texts.

local host, libraries = ...
local caught, stopped, charge, has_field = host.caught, host.stopped, host.charge, host.has_field
local error, type, select, next, rawget, rawset = error, type, select, next, rawget, rawset
local getmetatable, setmetatable, tostring, unpack = getmetatable, setmetatable, tostring, unpack
local raw_pcall, raw_xpcall = pcall, xpcall
local coroutine_create, coroutine_resume, coroutine_wrap = coroutine.create, coroutine.resume, coroutine.wrap
local tonumber = tonumber
local concat, insert, remove, sort = table.concat, table.insert, table.remove, table.sort
local rep, format, floor = string.rep, string.format, math.floor

-- Read-only tables: an empty proxy for scripts, with the content behind it.
local contents = {}

local function refuse()
  error("Attempt to modify a readonly table", 2)
end

-- What scripts get for the metatable of such a table: nothing is in it, and nothing can be.
local hidden = setmetatable({}, { __newindex = refuse, __metatable = false })
contents[hidden] = {}

local function readonly(content)
  local proxy = {}
  contents[proxy] = content
  local metatable = { __index = content, __newindex = refuse, __metatable = hidden }
  return setmetatable(proxy, metatable), metatable
end

local function check_table(value, position, name, count)
  if type(value) ~= "table" then
    local got = count >= position and type(value) or "no value"
    error("bad argument #" .. position .. " to '" .. name .. "' (table expected, got " .. got .. ")", 3)
  end
end

local function check_modifiable(value)
  if contents[value] then
    error("Attempt to modify a readonly table", 0)
  end
end

-- Errors.

local function settle(ok, ...)
  if ok then
    return ok, ...
  end
  local err = caught((...))
  if type(err) == "table" then
    -- As in Redis: scripts of old compare the error of redis.call with a string.
    local text = rawget(err, "err")
    if type(text) == "string" then
      err = text
    end
  end
  return false, err
end

local function settle_handled(ok, ...)
  if ok then
    return ok, ...
  end
  return false, caught((...))
end

local function pcall(...)
  if select("#", ...) == 0 then
    error("bad argument #1 to 'pcall' (value expected)", 2)
  end
  return settle(raw_pcall(...))
end

local function xpcall(f, handler, ...)
  return settle_handled(raw_xpcall(f, function(err)
    -- Lua calls a handler again for an error in it, down to the last level of the stack: so it raises none here.
    if stopped() then
      return err
    end
    return handler(caught(err))
  end))
end

-- Iteration: never over keys that hash by address.

local by_address = { table = true, ["function"] = true, thread = true, userdata = true }

local function ordered_next(t, key)
  local value
  key, value = next(t, key)
  if by_address[type(key)] then
    error(host.unordered_keys, 2)
  end
  return key, value
end

local function content_next(t, key)
  return ordered_next(contents[t] or t, key)
end

local function checked_next(t, ...)
  check_table(t, 1, "next", 1)
  return content_next(t, (...))
end

local function pairs(...)
  local t = ...
  if contents[t] then
    return content_next, t, nil
  end
  check_table(t, 1, "pairs", select("#", ...))
  return ordered_next, t, nil
end

-- Identity: tables and functions are numbered as a run asks for their names.

local names, named

local function name_of(value, kind)
  local name = names[value]
  if not name then
    named = named + 1
    name = format("%s: 0x%012x", kind, named)
    names[value] = name
  end
  return name
end

local function safe_tostring(...)
  local value = ...
  local kind = type(value)
  if not by_address[kind] then
    if select("#", ...) == 0 then
      error("bad argument #1 to 'tostring' (value expected)", 2)
    end
    return tostring(value)
  end
  if kind == "userdata" then
    return "userdata: (nil)"
  end
  if kind == "table" and has_field(value, "__tostring") then
    return tostring(value)
  end
  return name_of(value, kind)
end

local function safe_setmetatable(...)
  local t, metatable = ...
  check_table(t, 1, "setmetatable", select("#", ...))
  if type(metatable) ~= "table" and (metatable ~= nil or select("#", ...) < 2) then
    error("bad argument #2 to 'setmetatable' (nil or table expected)", 2)
  end
  check_modifiable(t)
  if metatable and rawget(metatable, "__mode") ~= nil then
    error("weak tables are not available: what they hold would differ between replicas", 2)
  end
  local current = getmetatable(t)
  if current ~= nil and has_field(t, "__metatable") then
    error("cannot change a protected metatable", 2)
  end
  return setmetatable(t, metatable)
end

local function safe_rawset(t, key, value)
  check_table(t, 1, "rawset", 1)
  check_modifiable(t)
  return rawset(t, key, value)
end

local function safe_rawget(t, key)
  check_table(t, 1, "rawget", 1)
  return rawget(contents[t] or t, key)
end

local function safe_unpack(t, i, j)
  check_table(t, 1, "unpack", 1)
  return unpack(t, i, j)
end

-- Tables: never on a library. What they move and compare, they count themselves.

local function safe_concat(...)
  local t, separator, i, j = ...
  check_table(t, 1, "concat", select("#", ...))
  return concat(t, separator, i, j)
end

local function safe_insert(...)
  local t, position, value = ...
  local count = select("#", ...)
  check_table(t, 1, "insert", count)
  check_modifiable(t)
  if count == 2 then
    t[#t + 1] = position
    return
  elseif count ~= 3 then
    error("wrong number of arguments to 'insert'", 2)
  end
  if type(position) ~= "number" then
    error("bad argument #2 to 'insert' (number expected, got " .. type(position) .. ")", 2)
  end
  insert(t, position, value)
end

local function safe_remove(...)
  local t, position = ...
  check_table(t, 1, "remove", select("#", ...))
  check_modifiable(t)
  if position == nil then
    return remove(t)
  end
  if type(position) ~= "number" then
    error("bad argument #2 to 'remove' (number expected, got " .. type(position) .. ")", 2)
  end
  return remove(t, position)
end

local function safe_sort(...)
  local t, order = ...
  check_table(t, 1, "sort", select("#", ...))
  check_modifiable(t)
  if order ~= nil and type(order) ~= "function" then
    error("bad argument #2 to 'sort' (function expected, got " .. type(order) .. ")", 2)
  end
  sort(t, order)
end

local function safe_maxn(...)
  local t = ...
  check_table(t, 1, "maxn", select("#", ...))
  local largest = 0
  for key in next, t do
    if type(key) == "number" and key > largest then
      largest = key
    end
  end
  return largest
end

local function foreach(t, f)
  check_table(t, 1, "foreach", 1)
  for key, value in pairs(t) do
    local result = f(key, value)
    if result ~= nil then
      return result
    end
  end
end

local function foreachi(t, f)
  check_table(t, 1, "foreachi", 1)
  for i = 1, #t do
    local result = f(i, t[i])
    if result ~= nil then
      return result
    end
  end
end

local function getn(t)
  check_table(t, 1, "getn", 1)
  return #t
end

local function setn()
  error("'setn' is obsolete", 2)
end

-- Strings.

local function safe_rep(...)
  local s, n = ...
  local kind = type(s)
  if kind ~= "string" and kind ~= "number" then
    error("bad argument #1 to 'rep' (string expected, got " .. (select("#", ...) > 0 and kind or "no value") .. ")", 2)
  end
  local count = tonumber(n)
  if not count then
    error("bad argument #2 to 'rep' (number expected, got " .. (select("#", ...) > 1 and type(n) or "no value") .. ")", 2)
  end
  return rep(s, count)
end

local seek, gsub_text, sub = libraries.pattern.seek, libraries.pattern.gsub, string.sub

local function gmatch(s, pattern)
  local position = 0
  local function step(first, after, ...)
    if first then
      position = after == first and after + 1 or after
    end
    return ...
  end
  return function()
    return step(seek("gmatch", s, pattern, position))
  end
end

local function gsub(...)
  local s, pattern, replacement, limit = ...
  local kind = type(replacement)
  if kind ~= "table" and kind ~= "function" then
    if kind ~= "string" and kind ~= "number" then
      error("bad argument #3 to 'gsub' (string/function/table expected)", 2)
    end
    return gsub_text(...)
  end
  if type(s) == "number" then
    s = tostring(s)
  end
  local pieces, position, count = {}, 0, 0
  -- Takes one match over into the pieces. Returns whether there may be more.
  local function replace(first, after, ...)
    if not first then
      return false
    end
    count = count + 1
    local value
    if kind == "table" then
      value = replacement[(...)]
    else
      value = replacement(...)
    end
    local value_kind = type(value)
    if not value then
      value = sub(s, first + 1, after)
    elseif value_kind ~= "string" and value_kind ~= "number" then
      error("invalid replacement value (a " .. value_kind .. ")", 3)
    end
    pieces[#pieces + 1] = sub(s, position + 1, first)
    pieces[#pieces + 1] = value
    position = after
    if after == first then
      if after >= #s then
        return false
      end
      position = after + 1
      pieces[#pieces + 1] = sub(s, position, position)
    end
    return true
  end
  limit = limit or 1 / 0
  while count < limit and replace(seek("gsub", s, pattern, position)) do
    if sub(pattern, 1, 1) == "^" then
      break
    end
  end
  pieces[#pieces + 1] = sub(s, position + 1)
  return concat(pieces), count
end

-- Coroutines: resume protects like pcall, and a new one costs what its uncounted first instructions may.

local function check_function(value, name, count)
  if type(value) ~= "function" then
    error("bad argument #1 to '" .. name .. "' (Lua function expected)", 3)
  end
end

local function create(f)
  check_function(f, "create")
  charge(host.steps_per_tick)
  return coroutine_create(f)
end

local function resume(thread, ...)
  if type(thread) ~= "thread" then
    error("bad argument #1 to 'resume' (coroutine expected)", 2)
  end
  return settle_handled(coroutine_resume(thread, ...))
end

local function wrap(f)
  check_function(f, "wrap")
  charge(host.steps_per_tick)
  return coroutine_wrap(f)
end

-- Compiling: under the limits, and for what the caller sees itself.

local function check_text(value, position, name, count)
  local kind = type(value)
  if kind ~= "string" and kind ~= "number" then
    local got = count >= position and kind or "no value"
    error("bad argument #" .. position .. " to '" .. name .. "' (string expected, got " .. got .. ")", 3)
  end
  return tostring(value)
end

-- `loadstring` and `load` of an environment.
local function compilers(environment)
  local function loadstring(...)
    local text, name = ...
    local count = select("#", ...)
    text = check_text(text, 1, "loadstring", count)
    name = name == nil and text or check_text(name, 2, "loadstring", count)
    return host.compile(text, name, environment)
  end
  local function load(...)
    local reader, name = ...
    local count = select("#", ...)
    if type(reader) ~= "function" then
      local got = count > 0 and type(reader) or "no value"
      error("bad argument #1 to 'load' (function expected, got " .. got .. ")", 2)
    end
    name = name == nil and "=(load)" or check_text(name, 2, "load", count)
    local pieces = {}
    while true do
      local ok, piece = settle_handled(raw_pcall(reader))
      if not ok then
        return nil, piece
      elseif piece == nil or piece == "" then
        break
      elseif type(piece) ~= "string" and type(piece) ~= "number" then
        return nil, "reader function must return a string"
      end
      pieces[#pieces + 1] = piece
    end
    charge(#pieces)
    return host.compile(concat(pieces), name, environment)
  end
  return loadstring, load
end

-- The environment.

local function pick(from, allowed)
  local content = {}
  for name in allowed:gmatch("%S+") do
    content[name] = from[name]
  end
  return content
end

local strings = pick(string, "byte char format len lower reverse sub upper")
strings.rep = safe_rep
strings.find, strings.match = libraries.pattern.find, libraries.pattern.match
strings.gsub, strings.gmatch, strings.gfind = gsub, gmatch, gmatch
strings.dump = libraries.pattern.dump

local tables = {
  concat = safe_concat, foreach = foreach, foreachi = foreachi, getn = getn, insert = safe_insert, maxn = safe_maxn,
  remove = safe_remove, setn = setn, sort = safe_sort,
}

local maths = pick(math, [[abs acos asin atan atan2 ceil cos cosh deg exp floor fmod frexp huge ldexp log log10 max min
  mod modf pi pow rad sin sinh sqrt tan tanh]])
maths.random, maths.randomseed = libraries.random.random, libraries.random.randomseed

local globals = pick(_G, "assert error getmetatable ipairs rawequal select tonumber type _VERSION")
globals.next, globals.pairs, globals.pcall, globals.xpcall = checked_next, pairs, pcall, xpcall
globals.rawget, globals.rawset, globals.setmetatable = safe_rawget, safe_rawset, safe_setmetatable
globals.tostring, globals.unpack = safe_tostring, safe_unpack
globals.coroutine = readonly({
  create = create, resume = resume, wrap = wrap,
  running = coroutine.running, status = coroutine.status, yield = coroutine.yield,
})
globals.string, globals.table, globals.math = readonly(strings), readonly(tables), readonly(maths)
globals.os = readonly({ clock = host.clock })
for _, name in next, { "bit", "cjson", "cmsgpack", "struct", "redis" } do
  globals[name] = readonly(libraries[name])
end

local known = { __index = function(_, name)
  error("Script attempted to access nonexistent global variable '" .. safe_tostring(name) .. "'", 2)
end }
setmetatable(globals, known)

local environment = readonly(globals)
rawset(globals, "_G", environment)
local loadstring, load = compilers(environment)
rawset(globals, "loadstring", loadstring)
rawset(globals, "load", load)

-- Methods of strings are the safe ones, and nobody can reach the metatable itself.
local string_metatable = getmetatable("")
string_metatable.__index = strings
string_metatable.__metatable = readonly({ __index = globals.string })

local failed = host.failed

local function begin()
  names, named = {}, 0
end

-- Runs a script. Its errors go to the host while its stack still stands.
local function run(script, keys, argv)
  begin()
  rawset(globals, "KEYS", keys)
  rawset(globals, "ARGV", argv)
  return raw_xpcall(script, failed)
end

-- What `libraries.lua` needs from here.
local shared = {
  begin = begin, compilers = compilers, contents = contents, error = error, find = string.find, globals = globals,
  known = known, lower = string.lower, next = next, readonly = readonly, select = select, setmetatable = setmetatable,
  tostring = tostring, type = type, xpcall = raw_xpcall,
}

-- Nobody needs Lua's own globals any more. The binding would search them for the name of every function on the stack
-- whenever a function raises an error, which takes a hundred times as long as raising it.
local own = _G
for name in next, own do
  own[name] = nil
end

return environment, run, shared
