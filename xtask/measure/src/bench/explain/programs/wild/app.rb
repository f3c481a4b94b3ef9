# WEBrick: app.rb PORT; what it does says BENCH_MODE, as in app.py.
require 'webrick'
mode = ENV['BENCH_MODE']
calls = 0
server = WEBrick::HTTPServer.new(Port: Integer(ARGV[0]), BindAddress: '0.0.0.0', AccessLog: [], Logger: WEBrick::Log.new(File::NULL))
server.mount_proc('/') do |_, response|
  calls += 1
  sleep 0.1 if mode == 'think'
  sleep 1.5 if mode == 'cold' && calls == 1
  response.body = "Hello, World!\n" * 20
end
server.start
