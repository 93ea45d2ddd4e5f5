// heads: the next queues that have jobs in line, and the next that have delayed ones, behind given names. It jumps along the
// indexes from queue to queue, so that it costs nothing to know of many others that have none. No name behind them means
// that these were the last.
CALL () {
  WITH $in_line AS at, [] AS found
  {next_in_line}
  {next_in_line}
  {next_in_line}
  {next_in_line}
  {next_in_line}
  {next_in_line}
  {next_in_line}
  {next_in_line}
  RETURN found AS ready, at AS in_line
}
CALL () {
  WITH $delayed AS at, [] AS found
  {next_delayed}
  {next_delayed}
  {next_delayed}
  {next_delayed}
  {next_delayed}
  {next_delayed}
  {next_delayed}
  {next_delayed}
  RETURN found AS late, at AS delayed
}
RETURN [ready + late, in_line, delayed] AS answer
