-- Libraries of functions: what they see, and how their functions are registered and called. Runs once per VM, behind
-- `prelude.lua`, whose parts it gets.
--
-- A call runs the library's code anew before its function: so what functions share, and change, begins each time as the code
-- makes it, on whatever thread and at whatever replica they run.

local host, libraries, shared = ...
local begin, contents, known, readonly = shared.begin, shared.contents, shared.known, shared.readonly
local error, find, lower, next, select = shared.error, shared.find, shared.lower, shared.next, shared.select
local setmetatable, tostring, type, xpcall = shared.setmetatable, shared.tostring, shared.type, shared.xpcall
local failed = host.failed

-- What functions see: what scripts see, but for their own words and the debugger's.
local functions = {}
for name, value in next, shared.globals do
  functions[name] = value
end
local redis_of_functions = {}
for name, value in next, libraries.redis do
  redis_of_functions[name] = value
end
for _, name in next, { "breakpoint", "debug", "replicate_commands" } do
  redis_of_functions[name] = nil
end
functions.redis = readonly(redis_of_functions)

-- What the code sees while it is loaded.
local loading, redis_of_loading = setmetatable({}, known), setmetatable({}, known)

local environment, environment_metatable = readonly(functions)
functions._G = environment
functions.loadstring, functions.load = shared.compilers(environment)
setmetatable(functions, known)

local function show(content)
  contents[environment] = content
  environment_metatable.__index = content
end

-- What the library that is being loaded has registered, in its order and by name.
local registered, by_name

local function refuse_registration(text)
  error({ err = "ERR " .. text }, 0)
end

-- As C sees strings: numbers are some, too.
local function as_text(value)
  local kind = type(value)
  return (kind == "string" or kind == "number") and tostring(value) or nil
end

local flag_names = {
  ["no-writes"] = true, ["allow-oom"] = true, ["allow-stale"] = true, ["no-cluster"] = true,
  ["allow-cross-slot-keys"] = true,
}

local function read_flags(flags)
  local found = {}
  for i = 1, 1 / 0 do
    local flag = flags[i]
    if flag == nil then
      return found
    end
    flag = as_text(flag)
    if not flag or not flag_names[lower(flag)] then
      refuse_registration("unknown flag given")
    end
    found[i] = lower(flag)
  end
end

local function read_named(arguments)
  if type(arguments) ~= "table" then
    refuse_registration("calling redis.register_function with a single argument is only applicable to Lua table "
      .. "(representing named arguments).")
  end
  -- First, because such keys come in the order of their addresses.
  for key in next, arguments do
    if not as_text(key) then
      refuse_registration("named argument key given to redis.register_function is not a string")
    end
  end
  local name, callback, description, flags
  for key, value in next, arguments do
    key = lower(tostring(key))
    if key == "function_name" then
      name = as_text(value)
      if not name then
        refuse_registration("function_name argument given to redis.register_function must be a string")
      end
    elseif key == "description" then
      description = as_text(value)
      if not description then
        refuse_registration("description argument given to redis.register_function must be a string")
      end
    elseif key == "callback" then
      callback = value
      if type(callback) ~= "function" then
        refuse_registration("callback argument given to redis.register_function must be a function")
      end
    elseif key == "flags" then
      if type(value) ~= "table" then
        refuse_registration("flags argument to redis.register_function must be a table representing function flags")
      end
      flags = read_flags(value)
    else
      refuse_registration("unknown argument given to redis.register_function")
    end
  end
  if not name then
    refuse_registration("redis.register_function must get a function name argument")
  elseif not callback then
    refuse_registration("redis.register_function must get a callback argument")
  end
  return name, callback, description, flags
end

local function read_positional(name, callback)
  name = as_text(name)
  if not name then
    refuse_registration("first argument to redis.register_function must be a string")
  elseif type(callback) ~= "function" then
    refuse_registration("second argument to redis.register_function must be a function")
  end
  return name, callback
end

local function register_function(...)
  if not registered then
    refuse_registration("redis.register_function can only be called on FUNCTION LOAD command")
  end
  local count = select("#", ...)
  if count < 1 or count > 2 then
    refuse_registration("wrong number of arguments to redis.register_function")
  end
  local name, callback, description, flags
  if count == 1 then
    name, callback, description, flags = read_named((...))
  else
    name, callback = read_positional(...)
  end
  if not find(name, "^[A-Za-z0-9_]+$") then
    refuse_registration("Library names can only contain letters, numbers, or underscores(_) and must be at least one "
      .. "character long")
  elseif by_name[name] then
    refuse_registration("Function already exists in the library")
  end
  by_name[name] = callback
  registered[#registered + 1] = { name, description or false, flags or {} }
end

for name, value in next, libraries.redis do
  if name == "log" or find(name, "^LOG_") or find(name, "^REDIS_VERSION") then
    redis_of_loading[name] = value
  end
end
redis_of_loading.register_function = register_function
loading.redis = readonly(redis_of_loading)

-- Loads a library and calls the function of that name; without a name, tells what the library registers.
local function run_library(code, name, keys, argv)
  begin()
  registered, by_name = {}, {}
  show(loading)
  local ok, result = xpcall(code, failed)
  local all, callback = registered, name and by_name[name]
  registered, by_name = nil, nil
  show(functions)
  if not ok then
    return ok, result
  elseif not name then
    return ok, all
  end
  return xpcall(function()
    return callback(keys, argv)
  end, failed)
end

-- Runs only replace what scripts see under these names: a run that made room for them would be charged for it.
shared.globals.KEYS, shared.globals.ARGV = false, false

return environment, run_library
