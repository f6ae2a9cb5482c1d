//! The sandbox: what scripts can't reach, can't change, and can't leave behind.

use super::double::{Disturbance, Double};

#[test]
fn dangerous_functions_are_absent() {
    let mut double = Double::new(Disturbance::default());
    for name in [
        "loadfile",
        "dofile",
        "require",
        "package",
        "module",
        "io",
        "debug",
        "print",
        "collectgarbage",
        "gcinfo",
        "newproxy",
        "getfenv",
        "setfenv",
        "os.execute",
        "os.exit",
        "os.time",
        "os.getenv",
        "os.remove",
        "coroutine.isyieldable",
        "string.seek",
    ] {
        let reply = double.shown(&format!("return tostring({name})"));
        assert!(reply == "$nil" || reply.contains("nonexistent global variable"), "{name}: {reply}");
    }
}

#[test]
fn what_a_function_is_compiled_to_is_shown_and_not_loaded() {
    let mut double = Double::new(Disturbance::default());
    let dumped = "local a, b = string.dump(function() return 1 end), string.dump(function() return 2 end) \
         local loaded, why = loadstring(a) \
         return { tostring(a:sub(2, 4)), tostring(a == b), tostring(loaded), type(why) }";
    assert_eq!(double.shown(dumped), "*4\n  $Lua\n  $false\n  $nil\n  $string");
    for hidden in ["pcall", "redis.call", "string.gmatch", "math.sin", "coroutine.wrap"] {
        let reply = double.shown(&format!("return string.dump({hidden})"));
        assert!(reply.contains("unable to dump given function"), "{hidden}: {reply}");
    }
    let reply = double.shown("return string.dump('x')");
    assert!(reply.contains("bad argument #1 to 'dump' (function expected, got string)"), "{reply}");
}

/// Where a table's keys were, those that are gone included, shows in the order of the others.
#[test]
fn the_order_of_keys_does_not_depend_on_addresses() {
    let script = "local t, held = {}, {} \
         local keys = { function() end, {}, coroutine.create(function() end), redis.call, {}, math, {}, \
         {}, {} } \
         for i, key in ipairs(keys) do t[key] = i end \
         for i, key in ipairs(keys) do t[key] = nil end \
         for i = 1, 9 do t['item' .. i] = true end \
         local order = {} for key in pairs(t) do order[#order + 1] = key end \
         for i, key in ipairs(keys) do held[key] = i assert(held[key] == i) end \
         return table.concat(order, ' ')";
    let mut double = Double::new(Disturbance::default());
    let wanted = double.shown(script);
    for runs in 0..40 {
        // What others have left behind: objects of all sizes that are keys, too.
        let others = format!(
            "local t = {{}} for i = 1, {} do t[{{}}] = {{ {{}}, i }} t[function() return i, t end] = i end",
            runs * 7
        );
        double.eval(&others).expect("it makes garbage");
        assert_eq!(double.shown(script), wanted, "after {runs} runs");
        std::thread::scope(|scope| {
            for _ in 0..4 {
                let in_new_vm = || Double::new(Disturbance::default()).shown(script);
                let thread = scope.spawn(in_new_vm);
                assert_eq!(thread.join().expect("it runs"), wanted, "in a new VM");
            }
        });
    }
}

/// Every machine's C library, and each processor's version of it, may give other last digits.
#[test]
fn functions_give_the_same_digits_everywhere() {
    let script = "local out = {} \
         for _, name in ipairs({ 'sin', 'sinh', 'cos', 'cosh', 'tan', 'tanh', 'asin', 'acos', 'atan', 'exp', 'log', 'log10' }) do \
           for i = 1, 400 do out[#out + 1] = string.format('%.17g', math[name](i / 401)) end \
         end \
         for i = 1, 400 do \
           out[#out + 1] = string.format('%.17g %.17g %.17g', math.atan2(i, 7), math.pow(i / 7, 3.3), (i / 3) ^ -2.7) \
         end \
         return redis.sha1hex(table.concat(out, ' '))";
    let mut double = Double::new(Disturbance::default());
    assert_eq!(double.shown(script), "$2b52c516461297abb50f00a72ef212c26bd0296e");
}

#[test]
fn nothing_can_be_changed_or_left_behind() {
    let mut double = Double::new(Disturbance::default());
    for script in [
        "leak = 1",
        "_G.leak = 1",
        "rawset(_G, 'leak', 1)",
        "redis.leak = 1",
        "rawset(redis, 'leak', 1)",
        "string.leak = 1",
        "string.rep = nil",
        "table.insert(redis, 'leak')",
        "table.insert(_G, 1, 'leak')",
        "table.remove(string)",
        "table.sort(math)",
        "setmetatable(redis, {})",
        "setmetatable(_G, nil)",
        "getmetatable('').__index = {}",
        "getmetatable('').__index.rep = 1",
        "rawset(getmetatable(''), '__index', {})",
        "setmetatable(getmetatable(''), {})",
        "getmetatable(_G).__index = {}",
        "getmetatable(redis).__newindex = nil",
        "for k, v in pairs(_G) do if type(v) == 'table' and v ~= KEYS and v ~= ARGV then rawset(v, 'leak', \
         1) end end",
        "for k, v in pairs(_G) do if k == 'string' then v.leak = 1 end end",
        "next(_G)\n string.leak = 1",
        "local it, t = pairs(redis) t.leak = 1",
        "local it, t = pairs(_G) rawset(t, 'leak', 1)",
        "cjson.null.x = 1",
        "table.foreach(_G, function(k, v) if k == 'redis' then rawset(v, 'leak', 1) end end)",
        "coroutine.wrap(function() leak = 1 end)()",
        "pcall(rawset, _G, 'leak', 1) error('still here')",
        "xpcall(function() leak = 1 end, function() end) error('still here')",
    ] {
        let reply = double.shown(script);
        assert!(reply.starts_with("-ERR "), "{script}: {reply}");
    }
    // What may be changed ends with the run.
    for script in [
        "KEYS.leak = 1 ARGV.leak = 1 return 1",
        "cjson.encode_sparse_array(true, 1, 1) cjson.encode_max_depth(1) \
         cjson.encode_invalid_numbers(true) return 1",
        "redis.setresp(3) math.randomseed(1) return 1",
        "tostring({}) tostring({}) return 1",
    ] {
        assert_eq!(double.shown(script), ":1", "{script}");
    }
    let check = "
        for _, t in pairs({_G, redis, string, table, math, os, bit, struct, cjson, cmsgpack, coroutine, KEYS, ARGV}) do
            if rawget(t, 'leak') ~= nil or rawget(t, 1) ~= nil then return 'leaked' end
        end
        if ('x').leak or ('ab'):rep(2) ~= 'abab' then return 'string methods changed' end
        if not pcall(cjson.encode, {{{{1}}}}) or pcall(cjson.encode, 0/0) then return 'cjson settings leaked' end
        if pcall(cjson.encode, {[100] = 1}) then return 'cjson settings leaked' end
        if redis.call('GET', 'nosuch') ~= false then return 'protocol leaked' end
        return tostring({})";
    assert_eq!(double.shown(check), "$table: 0x000000000001");
}

#[test]
fn addresses_and_unordered_iteration_are_out_of_reach() {
    let mut double = Double::new(Disturbance::default());
    assert_eq!(
        double.shown(
            "local t = {} return {tostring(t), tostring(print_ or t), tostring(redis.call), \
                      tostring(function() end)}"
                .replace("print_ or ", "")
                .as_str()
        ),
        "*4\n  $table: 0x000000000001\n  $table: 0x000000000001\n  $function: 0x000000000002\n  $function: \
         0x000000000003"
    );
    assert_eq!(double.shown("return tostring(coroutine.create(function() end))"), "$thread: 0x000000000001");
    for script in [
        "for k in pairs({[{}] = 1}) do end",
        "return next({[function() end] = 1})",
        "table.foreach({[{}] = 1}, function() end)",
        "local it = pairs({}) it({[{}] = 1})",
        "return cmsgpack.pack({[{}] = 1})",
        "return {map = {[{}] = 1}}",
        "return {set = {[{}] = true}}",
        "setmetatable({}, {__mode = 'k'})",
    ] {
        let reply = double.shown(script);
        assert!(reply.contains("replicas"), "{script}: {reply}");
    }
    assert_eq!(double.shown("local t = {} local set = {[t] = 5} return set[t]"), ":5", "lookups are fine");
    // A __tostring of the script's own is its own business; a protected metatable hides nothing.
    assert_eq!(
        double.shown("return tostring(setmetatable({}, {__metatable = 1}))"),
        "$table: 0x000000000001"
    );
    assert_eq!(
        double.shown(
            "return tostring(setmetatable({}, {__metatable = 1, __tostring = function() return 'me' end}))"
        ),
        "$me"
    );
}

#[test]
fn time_comes_from_the_transaction() {
    let mut double = Double::new(Disturbance::default());
    assert_eq!(double.shown("return tostring(os.clock())"), "$1700000000.123");
    assert_eq!(double.shown("return tostring(redis.call('TIME')[1])"), "$1700000000");
}

#[test]
fn hostile_scripts_do_not_crash() {
    let mut double = Double::new(Disturbance::default());
    for script in [
        "local t = {} t[1] = t return t",
        "local t = {} for i = 1, 100000 do t = {t} end return t",
        "return cjson.encode((function() local t = {} for i = 1, 5000 do t = {t} end return t end)())",
        "cjson.decode_max_depth(1000000) return cjson.decode(string.rep('[', 100000))",
        "return cmsgpack.unpack(string.rep('\\145', 100000))",
        "return cmsgpack.unpack(string.rep('\\144', 100000))",
        "return cmsgpack.unpack('\\221\\255\\255\\255\\255')",
        "return cmsgpack.unpack('\\219\\255\\255\\255\\255')",
        "return struct.unpack('c2147483647', 'x')",
        "return struct.pack('!1073741824i32', 1)",
        "return struct.unpack('dc0', struct.pack('d', 1e300))",
        "return struct.unpack('dc0', struct.pack('d', 0/0))",
        "local function f() return pcall(f) end return f()",
        "local function f() return 1 + f() end return f()",
        "local function f(s) return s:gsub('.', f) end return f('x')",
        "local mt = {} mt.__index = function(t, k) return t[k .. 'x'] end return setmetatable({}, mt).y",
        "local function f() local co = coroutine.wrap(f) return co() end return f()",
        "return unpack({}, 1, 1e6)",
        "return {unpack({}, 1, 7000)}",
        "return string.rep('x', -1)",
        "return string.rep('x', 0/0)",
        "return string.rep('', 2^31)",
        "return ('x'):rep(1000):find(('a?'):rep(1000))",
        "return ('('):rep(100):find(('('):rep(100))",
        "return string.format('%99999d', 1)",
        "return string.format('%s')",
        "return table.concat({}, 'x', 1, 2^31)",
        "table.sort({1, 2, 3, 'x', {}})",
        "local t = {} for i = 1, 1000 do t[i] = i end table.sort(t, function() return true end)",
        "return redis.call(unpack({}, 1, 5000))",
        "local t = {} for i = 1, 5000 do t[i] = 'x' end return redis.call('DEL', unpack(t))",
        "return redis.call('SET', setmetatable({}, {__tostring = error}))",
        "error(setmetatable({}, {__tostring = function() error('x') end}))",
        "error(error)",
        "error({err = {}})",
        "error(coroutine.create(function() end))",
        "xpcall(error, error)",
        "return xpcall(function() error('a') end, function() error('b') end)",
        "coroutine.yield()",
        "return coroutine.resume(coroutine.running())",
        "return math.random(2^53)",
        "return math.random(-2^31, 2^31)",
        "return bit.tohex(1, -2147483648)",
        "return ('x'):byte(1, 2^31)",
        "return select(-1)",
        "return tostring(2^63) .. string.format('%d', 2^63)",
        "return {double = {}}",
        "return {map = 1, set = 2, big_number = 3}",
        "return {big_number = '1\\r\\n2'}",
        "\\27Lua",
        "#!lua flags=\n return 1",
    ] {
        let outcome = double.eval(script);
        assert_ne!(outcome, Err(txn::Stop::Restart), "{script}");
    }
    assert_eq!(double.shown("return 1"), ":1", "the VM is as good as new");
    // Binary chunks are not scripts.
    let reply = super::double::show(&double.run("redis.eval", &[b"\x1bLua\x51\0\x01", b"0"]));
    assert!(reply.starts_with("-ERR Error compiling script"), "{reply}");
}
