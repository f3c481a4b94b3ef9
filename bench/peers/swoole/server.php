<?php
// Swoole with one worker: `php server.php HOST PORT`; / at once, /delay/10 after 10 ms, as a coroutine.
$server = new Swoole\Http\Server($argv[1], (int) $argv[2], SWOOLE_BASE);
$server->set(['worker_num' => 1, 'http_compression' => false, 'log_level' => SWOOLE_LOG_ERROR, 'max_conn' => 15000]);
$server->on('request', function ($request, $response) {
    if ($request->server['request_uri'] === '/delay/10') {
        Swoole\Coroutine::sleep(0.01);
    }
    $response->header('Content-Type', 'text/plain; charset=utf-8');
    $response->end("Hello, World!\n");
});
$server->start();
