<?php
// php -S: what it does says BENCH_MODE, as in app.py.
$mode = getenv('BENCH_MODE');
$mark = getenv('BENCH_MARK');
if ($mode === 'think') usleep(100000);
if ($mode === 'cold' && !file_exists($mark)) { touch($mark); usleep(1500000); }
header('Content-Type: text/plain');
echo str_repeat("Hello, World!\n", 20);
