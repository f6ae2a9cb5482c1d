-- a loop that does nothing
while true do end

-- an insertion far behind the end
while true do pcall(table.insert, {}, 2^31, 1) end

-- an insertion before the beginning
while true do pcall(table.insert, {1}, -1e5, 1) end

-- an insertion at a position that is no number
while true do pcall(table.insert, {}, 0/0, 1) pcall(table.insert, {}, -1/0, 1) end

-- a removal far away
while true do pcall(table.remove, {1, 2}, -2^31) pcall(table.remove, {1, 2}, 2^31) end

-- growth of a table's hash part
local t = {} for i = 1, 1e9 do t[i / 3] = 1 end

-- growth of a table's array part
local t = {} for i = 1, 1e9 do t[i] = 1 end

-- rehashes again and again
local t = {} for i = 1, 60000 do t[i] = 1 end while true do for i = 1, 5 do t['k' .. i] = 1 end for i = 1, 5 do t['k' .. i] = nil end end

-- keys that come and go in a table that stays full
local t = {} for i = 1, 1023 do t['k' .. i] = 1 end local i = 0 while true do i = i + 1 t[i + 0.5] = 1 t[i + 0.5] = nil end

-- cjson.encode that fails at its end
local t = {} for i = 1, 20000 do t[i] = i end t[20001] = function() end while true do pcall(cjson.encode, t) end

-- cjson.encode that succeeds
local t = {} for i = 1, 20000 do t[i] = i end while true do pcall(cjson.encode, t) end

-- cjson.encode of one table many times
local t = {1} for i = 1, 14 do t = {t, t} end while true do pcall(cjson.encode, t) end

-- cjson.encode of strings that are escaped
local s = ('\1'):rep(10000) while true do cjson.encode(s) end

-- cmsgpack.pack that fails at its end
local t = {} for i = 1, 20000 do t['k' .. i] = i end t[{}] = 1 while true do pcall(cmsgpack.pack, t) end

-- cmsgpack.pack of one table many times
local t = {1} for i = 1, 14 do t = {t, t} end while true do pcall(cmsgpack.pack, t) end

-- cmsgpack.unpack of empty arrays
local s = ('\144'):rep(10000) while true do pcall(cmsgpack.unpack, s) end

-- cjson.decode of empty arrays
local s = '[' .. ('[],'):rep(10000) .. '1]' while true do pcall(cjson.decode, s) end

-- cjson.decode that fails at its end
local s = '[' .. ('1,'):rep(100000) while true do pcall(cjson.decode, s) end

-- cjson.decode of long keys that collide
local K, t = {0x7C15, 0x7F4A, 0x79B9, 0x9E37}, {} for i = 8224, 16447 do local a, r, carry, w = {bit.bxor(40, i), 0x2121, 0x2121, 0x2121}, {[5] = 0, [6] = 0}, 0, {} for p = 1, 4 do for q = 1, p do carry = carry + a[q] * K[p - q + 1] end r[p] = carry % 65536 carry = math.floor(carry / 65536) end for p = 1, 4 do w[p] = bit.bxor(r[p], math.floor(r[p + 1] / 8192) + r[p + 2] * 8 % 65536) end t[#t + 1] = struct.pack('<HHHHHHHH', i, 0x2121, 0x2121, 0x2121, unpack(w)) .. ('x'):rep(24) end local j = {} for _, k in ipairs(t) do if not k:find('[%c"\\]') then j[#j + 1] = '"' .. k .. '":1' end end j = '{' .. table.concat(j, ',') .. '}' while true do pcall(cjson.decode, j) end

-- cmsgpack.unpack of long keys that collide
local K, t = {0x7C15, 0x7F4A, 0x79B9, 0x9E37}, {} for i = 8224, 16447 do local a, r, carry, w = {bit.bxor(40, i), 0x2121, 0x2121, 0x2121}, {[5] = 0, [6] = 0}, 0, {} for p = 1, 4 do for q = 1, p do carry = carry + a[q] * K[p - q + 1] end r[p] = carry % 65536 carry = math.floor(carry / 65536) end for p = 1, 4 do w[p] = bit.bxor(r[p], math.floor(r[p + 1] / 8192) + r[p + 2] * 8 % 65536) end t[#t + 1] = struct.pack('<HHHHHHHH', i, 0x2121, 0x2121, 0x2121, unpack(w)) .. ('x'):rep(24) end local s = struct.pack('>BH', 222, #t) .. '\217\40' .. table.concat(t, '\1\217\40') .. '\1' while true do pcall(cmsgpack.unpack, s) end

-- cjson.decode of a string without an end
local s = '"' .. ('x'):rep(2^20) while true do pcall(cjson.decode, s) end

-- cjson.decode of escapes without an end
local s = '"' .. ('\\n'):rep(2^19) while true do pcall(cjson.decode, s) end

-- cjson.decode of spaces
local s = (' '):rep(2^20) while true do pcall(cjson.decode, s) end

-- cjson.decode of a string where a comma is expected
local s = '[1"' .. ('x'):rep(2^20) .. '"' while true do pcall(cjson.decode, s) end

-- cjson.encode of emptied tables
local t, u = {}, {} for i = 1, 2^18 do t[i] = 1 end for i = 1, 2^18 do t[i] = nil end for i = 1, 100000 do u[i] = t end while true do cjson.encode(u) end

-- cmsgpack.pack of emptied tables
local t, u = {}, {} for i = 1, 2^18 do t[i] = 1 end for i = 1, 2^18 do t[i] = nil end for i = 1, 100000 do u[i] = t end while true do cmsgpack.pack(u) end

-- cjson.encode of a long string that is escaped
local s = ('\1'):rep(2^23) while true do pcall(cjson.encode, s) end

-- a plain pattern that is long
local s = ('x'):rep(20000) local p = ('x'):rep(10000) .. 'y' while true do string.find(s, p, 1, true) end

-- a pattern without specials that is long
local s = ('x'):rep(20000) local p = ('x'):rep(10000) .. 'y' while true do string.find(s, p) end

-- a pattern that backtracks
local s = ('a'):rep(200) while true do s:find('.-.-.-.-b') end

-- a class that is long
local s, p = ('b'):rep(1000), '[' .. ('a'):rep(1000) .. ']' while true do s:find(p) end

-- a class without an end
local s = '[' .. ('a'):rep(2^20) while true do pcall(string.match, 'x', s) end

-- a class without an end, for gsub
local s = '%f[' .. ('a'):rep(2^20) while true do pcall(string.gsub, 'x', s, '') end

-- a back reference that is long
local s = ('a'):rep(20000) while true do s:find('(a*)%1%1b') end

-- a balanced pattern without an end
local s = ('('):rep(10000) while true do s:find('%b()') end

-- gsub by a function
local s = ('x'):rep(10000) while true do s:gsub('', function() end) end

-- gsub with a long replacement
local s, r = ('x'):rep(1000), ('%%'):rep(500) while true do s:gsub('x', r) end

-- gsub with a long match many times
local s, r = ('a'):rep(2^20), ('%1'):rep(20000) while true do s:gsub('(.*)', r) end

-- gsub with captures many times
local s, r = ('a'):rep(1000), ('%1%2'):rep(100) while true do s:gsub('(a)(a)', r) end

-- loadstring of deep concatenations
local s = 'return ' .. ('"a"..'):rep(180) .. '"b"' while true do loadstring(s) end

-- loadstring of a long concatenation
local s = 'return ' .. ('a..'):rep(240) .. 'b' while true do loadstring(s) end

-- loadstring of names that are searched for in many scopes
local s = ('local a = 1 '):rep(190) local t = {} for i = 1, 40 do t[i] = 'return function() ' .. ('local c = 1 '):rep(150) end local p = s .. table.concat(t) .. ('b = b '):rep(1000) .. (' end'):rep(40) while true do loadstring(p) end

-- loadstring of many jumps to one place
local s = 'while a do ' .. ('if a then break end '):rep(2000) .. 'end' while true do loadstring(s) end

-- loadstring of a long condition
local s = 'return ' .. ('a and '):rep(2000) .. '1' while true do loadstring(s) end

-- loadstring of a chain of elseif
local s = 'if a then ' .. ('elseif a then '):rep(2000) .. 'end' while true do loadstring(s) end

-- loadstring of many constants
local t = {} for i = 1, 2000 do t[i] = 'a=' .. i end local s = table.concat(t, ' ') while true do loadstring(s) end

-- loadstring of comments
local s = ('\n'):rep(10000) while true do loadstring(s) end

-- loadstring of what fails at its end
local s = ('f(x):y{z}[1].a = 2 '):rep(300) .. '=' while true do loadstring(s) end

-- KEYS with a hard pattern
local p = ('*a'):rep(50) .. 'b' while true do redis.call('KEYS', p) end

-- KEYS with a word that is nearly there everywhere
local p = '*' .. ('a'):rep(40) .. 'b' while true do redis.call('KEYS', p) end

-- SINTERCARD of one set many times
local t = {} for i = 1, 1000 do t[i] = 'set' end while true do redis.call('SINTERCARD', 1000, unpack(t)) end

-- MGET of one string many times
local t = {} for i = 1, 1000 do t[i] = 'chunks' end while true do redis.call('MGET', unpack(t)) end

-- BITOP of one string many times
local t = {} for i = 1, 1000 do t[i] = 'chunks' end while true do redis.call('BITOP', 'OR', 'new', unpack(t)) end

-- SORT by long patterns
local p = ('x'):rep(10000) .. '*' while true do redis.call('SORT', 'set:ints', 'BY', p, 'GET', p, 'GET', p) end

-- KEYS with a long class
local p = '*[' .. ('b'):rep(1000) .. ']' while true do redis.call('KEYS', p) end

-- KEYS that match nothing
while true do redis.call('KEYS', 'none') end

-- SCAN with a hard pattern
local p = ('*a'):rep(50) .. 'b' while true do redis.call('SCAN', 0, 'MATCH', p, 'COUNT', 10000) end

-- ZINTERCARD
while true do redis.call('ZINTERCARD', 2, 'zset', 'zset:2') end

-- ZINTER
while true do redis.call('ZINTER', 2, 'zset', 'zset:2') end

-- ZUNIONSTORE
while true do redis.call('ZUNIONSTORE', 'new', 2, 'zset', 'zset:2') end

-- ZDIFF
while true do redis.call('ZDIFF', 2, 'zset', 'zset:2') end

-- SINTERCARD
while true do redis.call('SINTERCARD', 2, 'set', 'set:2') end

-- SUNION
while true do redis.call('SUNION', 'set', 'set:2') end

-- SDIFFSTORE
while true do redis.call('SDIFFSTORE', 'new', 'set', 'set:2') end

-- SMEMBERS
while true do redis.call('SMEMBERS', 'set') end

-- HGETALL
while true do redis.call('HGETALL', 'hash') end

-- HGETALL in the third protocol
redis.setresp(3) while true do redis.call('HGETALL', 'hash') end

-- SORT by letters
while true do redis.call('SORT', 'list', 'ALPHA', 'LIMIT', 0, 1) end

-- SORT by other keys
while true do redis.call('SORT', 'set:ints', 'BY', 'k*', 'LIMIT', 0, 1) end

-- LPOS of what is absent
while true do redis.call('LPOS', 'list', 'none') end

-- LINSERT before what is absent
while true do redis.call('LINSERT', 'list', 'BEFORE', 'none', 'x') end

-- BITCOUNT
while true do redis.call('BITCOUNT', 'string') end

-- BITPOS in chunks
while true do redis.call('BITPOS', 'chunks', 0) redis.call('BITPOS', 'chunks', 1) end

-- SETRANGE far away
local i = 0 while true do i = i + 1 redis.call('SETRANGE', 'new' .. i, 400000000, 'x') end

-- APPEND to a long string
while true do redis.call('APPEND', 'string', 'x') end

-- LCS
while true do redis.pcall('LCS', 'short', 'short:2', 'IDX', 'WITHMATCHLEN') end

-- PFCOUNT of several
while true do redis.call('PFCOUNT', 'hll', 'hll:2') end

-- GEOSEARCH
while true do redis.call('GEOSEARCH', 'geo', 'FROMLONLAT', 0, 0, 'BYRADIUS', 10000, 'km', 'COUNT', 1) end

-- XPENDING
while true do redis.call('XPENDING', 'stream', 'group', 'IDLE', 1000000, '-', '+', 10) end

-- XINFO
while true do redis.call('XINFO', 'STREAM', 'stream', 'FULL', 'COUNT', 0) end

-- DUMP and RESTORE
while true do redis.call('RESTORE', 'new', 0, redis.call('DUMP', 'zset'), 'REPLACE') end

-- COMMAND DOCS
while true do redis.pcall('COMMAND', 'DOCS') end

-- commands that fail
while true do redis.pcall('NONE') redis.pcall('GET') redis.pcall('INCR', 'list') end

-- errors of redis.call
while true do pcall(redis.call, 'NONE') end

-- errors
while true do pcall(error, 'x') end

-- errors with a place
while true do pcall(error, 'x', 2) end

-- errors of functions that are deep
local function f(n) if n == 0 then error('x') end return (pcall(f, n - 1)) end while true do f(100) end

-- errors by arithmetic on nil
while true do pcall(function() local a = nil + 1 end) end

-- stack overflow
local function f() return 1 + f() end while true do pcall(f) end

-- stack overflow from a great depth
local function g() return 1 + g() end pcall(g) local function deep(n) if n > 0 then return 1 + deep(n - 1) end while true do pcall(g) end end deep(19900)

-- stack overflow of C
local t = setmetatable({}, {}) getmetatable(t).__index = function(t, k) return t[k] end while true do pcall(function() return t.x end) end

-- handlers of errors
while true do xpcall(error, function() return debug end) end

-- coroutines
while true do coroutine.wrap(function() end)() end

-- coroutines that end in errors
while true do coroutine.resume(coroutine.create(error), 'x') end

-- coroutines within coroutines
local function f(n) if n > 0 then coroutine.wrap(f)(n - 1) end end while true do pcall(f, 150) end

-- values that are passed on
local t = {} for i = 1, 7000 do t[i] = i end local function f(...) return select('#', ...) end while true do f(unpack(t)) end

-- select of the last of many
local t = {} for i = 1, 7000 do t[i] = i end local function f(...) for i = 1, 1000 do local x = select(7000, ...) end end while true do f(unpack(t)) end

-- select from the end
local t = {} for i = 1, 7000 do t[i] = i end local function f(...) for i = 1, 1000 do local x = select(-1, ...) end end while true do f(unpack(t)) end

-- tables made of many values
local t = {} for i = 1, 7000 do t[i] = i end while true do local u = {unpack(t)} end

-- string.byte and string.char of many
local s = ('x'):rep(7000) while true do string.char(string.byte(s, 1, -1)) end

-- math.max of many
local t = {} for i = 1, 7000 do t[i] = i end while true do math.max(unpack(t)) end

-- pcall of many
local t = {} for i = 1, 7000 do t[i] = i end while true do pcall(select, '#', unpack(t)) end

-- concatenation of many
local f = loadstring('local a = ("x"):rep(1000) return ' .. ('a..'):rep(180) .. 'a') while true do f() end

-- strings of many lengths
local i = 0 while true do i = i + 1 local x = ('x'):rep(i % 1000) .. i end

-- lower, upper, reverse
local s = ('x'):rep(100000) while true do s:lower() s:upper() s:reverse() end

-- sub
local s = ('x'):rep(100000) while true do s:sub(2) s:sub(-99990) end

-- comparison of long strings
local a, b = ('x'):rep(100000) .. 'a', ('x'):rep(100000) .. 'b' while true do local x = a < b end

-- comparison of strings with zero bytes
local a, b = ('\0'):rep(10000) .. 'a', ('\0'):rep(10000) .. 'b' while true do local x = a < b end

-- format of numbers
while true do ('%99.99f%99.99f'):format(1e308, -1e308) end

-- format of long strings
local s = ('x'):rep(100000) while true do ('%s'):format(s) end

-- format with quotes
local s = ('"'):rep(10000) while true do ('%q'):format(s) end

-- numerals
while true do local x = 1e308 / 3 .. '' end

-- strings as numbers
local s = ('9'):rep(99) while true do local x = s + s end

-- tonumber of long strings
local s = ('9'):rep(100000) while true do tonumber(s) end

-- tonumber of long strings in a base
local s = ('1'):rep(100000) while true do tonumber(s, 2) tonumber(s, 36) end

-- tonumber of spaces
local s = (' '):rep(100000) .. '1' while true do tonumber(s) tonumber(s, 10) end

-- tonumber of a numeral with exponents
while true do tonumber('1e308') tonumber('1e-308') tonumber('0x1p1023') tonumber('123456789012345678901234567890e-300') end

-- transcendental functions
local x = 1e22 while true do local a = math.sin(x) + math.tan(x) + math.cos(x) end

-- powers
while true do local x = 1.0000001 ^ 1e9 + math.pow(1e-300, 0.3) end

-- remainders
while true do local a, b = math.fmod(1e308, 3e-308), 1e308 % 3e-308 end

-- sort by comparisons that lie
local t = {} for i = 1, 2000 do t[i] = i end while true do pcall(table.sort, t, function() return true end) end

-- sort of long strings
local t, s = {}, ('x'):rep(1000) for i = 1, 200 do t[i] = s .. i end while true do table.sort(t) t[1], t[200] = t[200], t[1] end

-- sort of what is in order
local t = {} for i = 1, 250 do t[i] = i end while true do table.sort(t) end

-- sort with metamethods
local m = {__lt = function(a, b) return false end} local t = {} for i = 1, 250 do t[i] = setmetatable({}, m) end while true do table.sort(t) end

-- length of a table with holes
local t = {} for i = 1, 2^16 do t[i] = 1 end t[2^15] = nil while true do local x = #t end

-- next over empty places
local t = {} for i = 1, 2^16 do t['k' .. i] = 1 end for i = 1, 2^16 do t['k' .. i] = nil end while true do next(t) end

-- keys that collide
local t = {} for i = 1, 2000 do t[i * 2^32] = i end while true do local x = t[2001 * 2^32] end

-- numbers that collide
local t = {} for i = 1, 1000 do t[2^i] = i t[-2^i] = i end while true do local x = t[2^1001] end

-- metatables in a chain
local t = {} for i = 1, 99 do t = setmetatable({}, {__index = t}) end while true do local x = t.x end

-- tables as names
while true do tostring({}) end

-- closures
local a = 1 while true do local f = function() return a end end

-- closures with many variables
local f = loadstring(('local a%d = 1 '):rep(50):gsub('%%d', (function() local i = 0 return function() i = i + 1 return i end end)()) .. ' return function() while true do local f = function() ' .. ('a%d = 1 '):rep(50):gsub('%%d', (function() local i = 0 return function() i = i + 1 return i end end)()) .. ' end end end') f()()

-- closures over a scope that ends
while true do local a, b, c = 1, 2, 3 local f = function() return a, b, c end end

-- global variables
while true do pcall(function() x = 1 end) end

-- digests
while true do redis.sha1hex('') end

-- digests of long strings
local s = ('x'):rep(100000) while true do redis.sha1hex(s) end

-- replies made by scripts
local s = ('x y'):rep(1000) while true do redis.error_reply(s) redis.status_reply(s) end

-- struct.pack of many
local f = ('i32'):rep(200) local t = {} for i = 1, 200 do t[i] = i end while true do struct.pack(f, unpack(t)) end

-- struct.unpack of many
local f, s = ('b'):rep(5000), ('x'):rep(5000) while true do struct.unpack(f, s) end

-- struct.unpack of long strings
local s = ('x'):rep(100000) while true do struct.unpack('c100000', s) end

-- struct.pack of long strings
local s = ('x'):rep(100000) while true do struct.pack('s', s) struct.pack('c0', s) end

-- a library function's long arguments
local s = ('x'):rep(100000) while true do pcall(bit.tobit, s) pcall(math.sin, s) pcall(string.rep, 'x', s) end

-- words of commands
local t = {} for i = 1, 7000 do t[i] = i end while true do redis.pcall('DEL', unpack(t)) end

-- words of commands that are refused
local t = {} for i = 1, 7000 do t[i] = 'x' end while true do redis.pcall('NONE', unpack(t)) pcall(redis.acl_check_cmd, 'GET', unpack(t)) end

-- a reply of many nested tables
local t = {} for i = 1, 900 do t = {t} end return t

-- a reply of a table many times
local t = {} for i = 1, 14 do t = {t, t} end return t

-- strings that are made twice
local s = ('x'):rep(65536) while true do local x = s .. s end

-- reading globals that are absent
while true do pcall(function() return nothing end) end

-- comparing errors
while true do pcall(function() return {} < {} end) pcall(function() return 1 < 'x' end) pcall(function() return #nil end) end

-- calls of what is no function
while true do pcall(1) pcall(nil) end

-- memory that half of is enough for nobody
local t = {} for i = 1, 1e9 do t[i] = {i} end

-- the number of keys, many of which the script has written
local t = {} for i = 1, 1000 do t[2 * i - 1], t[2 * i] = 'new' .. i, i end redis.call('MSET', unpack(t)) while true do redis.call('DBSIZE') end

-- pages of the keys, many of which the script has written
for n = 1, 3 do local t = {} for i = 1, 1000 do t[2 * i - 1], t[2 * i] = n .. 'new' .. i, i end redis.call('MSET', unpack(t)) end while true do redis.call('SCAN', 0, 'COUNT', 1) end

-- a random key, where the script has deleted all keys
redis.call('FLUSHALL') while true do redis.call('RANDOMKEY') end

-- a random key, where the script has deleted what it wrote
local t, u = {}, {} for i = 1, 1000 do t[2 * i - 1], t[2 * i], u[i] = 'new' .. i, i, 'new' .. i end redis.call('MSET', unpack(t)) redis.call('DEL', unpack(u)) redis.call('FLUSHALL') redis.call('DEL', unpack(u)) while true do redis.call('RANDOMKEY') end

-- PFMERGE of a sparse sketch into a new one
for i = 1, 1e9 do redis.call('PFMERGE', 'new' .. i, 'hll') end

-- the number of keys
while true do redis.call('DBSIZE') end

-- a short pattern that is found nowhere
local s = ('x'):rep(1000) while true do s:match('%d+') s:find('.-b') end

-- DEL of many
local t = {} for i = 1, 7000 do t[i] = 'set' end while true do redis.pcall('DEL', unpack(t)) end

-- a hash that grows beyond its packed form and shrinks again
local f, g = {}, {} for i = 1, 64 do f[2 * i - 1], f[2 * i], g[i] = 'f' .. i, ('x'):rep(40), 'f' .. i end redis.call('HSET', 'border', unpack(f)) while true do redis.call('HSET', 'border', 'more', 1) redis.call('HDEL', 'border', 'more') end

-- a hash whose value grows beyond its packed form and shrinks again
local f = {} for i = 1, 60 do f[2 * i - 1], f[2 * i] = ('n'):rep(22) .. i, ('x'):rep(30) end redis.call('HSET', 'border', unpack(f)) while true do redis.call('HSET', 'border', 'f', ('x'):rep(2000), 'f', '') end

-- a set that grows beyond its packed form and shrinks again
local m = {} for i = 1, 64 do m[i] = ('m'):rep(30) .. i end redis.call('SADD', 'border', unpack(m)) while true do redis.call('SADD', 'border', 'more') redis.call('SREM', 'border', 'more') end

-- a list that grows beyond its packed form and shrinks again
local e = {} for i = 1, 64 do e[i] = ('e'):rep(30) end redis.call('RPUSH', 'border', unpack(e)) while true do redis.call('LPUSH', 'border', 1) redis.call('LPOP', 'border') end

-- a sorted set that grows beyond its packed form and shrinks again
local m = {} for i = 1, 64 do m[2 * i - 1], m[2 * i] = i + 0.5, ('m'):rep(30) .. i end redis.call('ZADD', 'border', unpack(m)) while true do redis.call('ZADD', 'border', 1, 'more') redis.call('ZREM', 'border', 'more') end

-- a sorted set whose pairs change it to and fro
local m = {} for i = 1, 3000 do m[2 * i - 1], m[2 * i] = i % 2 == 0 and 0 or 1.5, 'm' end redis.call('ZADD', 'border', 0, ('m'):rep(4000)) while true do redis.call('ZADD', 'border', unpack(m)) end
