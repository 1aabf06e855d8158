-- One call of one process about one dependency: what became of its first attempts and its retries
-- since the last call goes in, a lease and the next interval come out.
--
-- Amounts are milli-tokens, times milliseconds of this server's own clock. KEYS[1] is a hash with the
-- account and a field for each process. The account and what is remembered of the call are written at the
-- end, in one step.

local key, process = KEYS[1], 'process:' .. ARGV[1]
local call = {}
for at, name in ipairs({
  'sequence', 'attempts', 'span', 'earned', 'back', 'back_ceiling', 'owed', 'owed_ceiling',
  'want', 'want_ceiling', 'need', 'seen', 'seen_ceiling',
  'ratio', 'floor', 'initial', 'trickle', 'ceiling_ratio', 'most', 'ceiling_caps',
}) do
  call[name] = tonumber(ARGV[at + 1])
end

local LEAST_INTERVAL, CALLS_PER_SECOND = 125, 400
local LEAST_LIVE, REMEMBERED, LONGEST = 2000, 60000, 1000000000
local ACCOUNT = {
  'balance', 'ceiling', 'at', 'rest', 'this', 'last', 'live', 'swept',
  'earned', 'leased', 'back', 'owed', 'debt',
}

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)

local stored = redis.call('HMGET', key, process, unpack(ACCOUNT))
local known = table.remove(stored, 1)
local account = {}
for at, name in ipairs(ACCOUNT) do
  account[name] = tonumber(stored[at] or nil) or 0
end

-- A missing key starts from what the caller saw last, never at the cap.
if not stored[1] then
  account.balance = call.seen >= 0 and math.min(call.seen, call.floor) or call.initial
  local most = call.floor * call.ceiling_caps
  account.ceiling = call.seen_ceiling >= 0 and math.min(call.seen_ceiling, most) or most
  account.earned = account.balance
  account.at, account.swept = now, now
end

local function cap()
  local attempts = math.max(account.this, account.last)
  return math.max(call.floor, math.min(call.ratio * attempts, call.most))
end

-- Adds up to `most`; what is over it already stays.
local function raised(amount, by, most)
  return math.max(amount, math.min(amount + by, most))
end

local function interval()
  return math.max(LEAST_INTERVAL, math.ceil(account.live * 1000 / CALLS_PER_SECOND))
end

-- Another server's clock after a failover, say. No time has passed, and who is live is learnt anew.
if now < account.at then
  for at, field in ipairs(redis.call('HKEYS', key)) do
    if string.sub(field, 1, 8) == 'process:' and field ~= process then
      redis.call('HDEL', key, field)
    end
  end
  account.live, account.swept = 0, now
  account.this, account.last = 0, 0
end

-- The time since the last call of anybody.
local second, then_second = math.floor(now / 1000), math.floor(account.at / 1000)
if second ~= then_second then
  account.last = second == then_second + 1 and account.this or 0
  account.this = 0
end
if call.trickle > 0 then
  local elapsed = math.max(0, math.min(now - account.at, LONGEST))
  local trickled = elapsed * 1000000 + account.rest
  local gained = math.floor(trickled / call.trickle)
  account.rest = trickled - gained * call.trickle
  local before = account.balance
  account.balance = raised(account.balance, gained, cap())
  account.ceiling = raised(account.ceiling, gained, cap() * call.ceiling_caps)
  account.earned = account.earned + account.balance - before
end
account.at = now

-- Who is live. A process counts from its first call on; those that fell silent are found a few times
-- in each window.
local window = math.max(LEAST_LIVE, 4 * interval())
local seen, sequence, lease, lease_ceiling
if known then
  seen, sequence, lease, lease_ceiling = string.match(known, '^(%d+) (%d+) (%d+) (%d+)$')
  seen, sequence = tonumber(seen), tonumber(sequence)
end
if not seen or now - seen >= window then
  account.live = account.live + 1
end
if now - account.swept >= window / 4 then
  account.live, account.swept = 1, now
  local fields = redis.call('HGETALL', key)
  for at = 1, #fields, 2 do
    if string.sub(fields[at], 1, 8) == 'process:' and fields[at] ~= process then
      local silent = now - (tonumber(string.match(fields[at + 1], '^%d+') or nil) or 0)
      if silent < window then
        account.live = account.live + 1
      elseif silent > math.max(REMEMBERED, window) then
        redis.call('HDEL', key, fields[at])
      end
    end
  end
end

if sequence and call.sequence <= sequence then
  -- Told before: the reply was lost, or a client in between repeated the call.
  if call.sequence < sequence then
    lease, lease_ceiling = 0, 0
  end
  call.sequence = sequence
else
  -- A report over a longer time than an interval counts as much as an interval of it, or the first
  -- call after an outage would raise the cap for all that happened in it.
  local counted, span = call.attempts, math.max(1000, interval())
  if call.span > span then
    counted = math.floor(counted * span / call.span)
  end
  account.this = account.this + counted

  local before = account.balance
  account.balance = raised(account.balance, call.back, cap())
  account.back = account.back + account.balance - before
  account.ceiling = raised(account.ceiling, call.back_ceiling, cap() * call.ceiling_caps)
  if call.attempts > 0 then
    before = account.balance
    account.balance = math.min(account.balance + call.earned, cap())
    account.earned = account.earned + account.balance - before
    if call.ceiling_ratio >= 0 then
      account.ceiling = math.min(
        account.ceiling + call.attempts * call.ceiling_ratio, cap() * call.ceiling_caps)
    end
  end
  -- What was spent without a lease and cannot be paid now is paid from what comes in later.
  account.debt = math.min(account.debt + call.owed, cap())
  local paid = math.min(account.balance, account.debt)
  account.balance = account.balance - paid
  account.debt = account.debt - paid
  account.owed = account.owed + paid
  account.ceiling = math.max(0, account.ceiling - call.owed_ceiling)

  lease, lease_ceiling = 0, 0
  local ample = call.ceiling_ratio < 0 or account.ceiling >= 1000
  if account.balance >= call.need and ample then
    local share = math.floor(account.balance / (2 * account.live))
    lease = math.min(call.want, math.max(call.need, share))
    account.balance = account.balance - lease
    account.leased = account.leased + lease
    lease_ceiling = call.want_ceiling
    if call.ceiling_ratio >= 0 then
      share = math.floor(account.ceiling / (2 * account.live))
      lease_ceiling = math.min(call.want_ceiling, math.max(1000, share))
      account.ceiling = account.ceiling - lease_ceiling
    end
  end
end

local write = { process, string.format('%.0f %.0f %.0f %.0f', now, call.sequence, lease, lease_ceiling) }
for _, name in ipairs(ACCOUNT) do
  write[#write + 1] = name
  write[#write + 1] = string.format('%.0f', account[name])
end
redis.call('HSET', key, unpack(write))

-- By then an idle account would be full, whatever it held.
local expires = 3600000
if call.trickle > 0 then
  expires = math.floor(cap() * call.trickle / 1000000) + 60000
end
redis.call('PEXPIRE', key, string.format('%.0f', math.min(expires, 1000 * LONGEST)))

return {
  tonumber(lease), tonumber(lease_ceiling), account.balance, account.ceiling, cap(),
  account.live, interval(),
}
