-- For wrk: sends the requests of a file in turn, unchanged; NUL separates them. The last line of the output
-- is the result, as JSON.

local requests, last = {}, 0

function init(args)
  local file = assert(io.open(args[1], "rb"))
  for one in file:read("*a"):gmatch("[^%z]+") do
    requests[#requests + 1] = one
  end
  file:close()
end

function request()
  last = last % #requests + 1
  return requests[last]
end

function done(summary)
  local errors = summary.errors
  local form = '{"answered": %d, "seconds": %f, "refused": %d, "connect": %d, "read": %d, "write": %d, "late": %d}\n'
  io.write(form:format(summary.requests, summary.duration / 1e6, errors.status, errors.connect, errors.read,
    errors.write, errors.timeout))
end
