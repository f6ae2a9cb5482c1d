//! The commands of Redis 7.2 that the table does not have, with their categories: rules may name them,
//! because whoever moves here brings rules which do.

/// Lines of a name and its categories, subcommands as `container|name` behind their container. A command that
/// becomes an entry of the table may stay here: the table's entry counts.
pub(super) const ABSENT: &str = "\
debug admin slow dangerous
failover admin slow dangerous
latency slow
latency|doctor admin slow dangerous
latency|graph admin slow dangerous
latency|help slow
latency|histogram admin slow dangerous
latency|history admin slow dangerous
latency|latest admin slow dangerous
latency|reset admin slow dangerous
lolwut read fast
memory|doctor slow
memory|help slow
memory|malloc-stats slow
memory|purge slow
memory|stats slow
migrate keyspace write slow dangerous
module slow
module|help slow
module|list admin slow dangerous
module|load admin slow dangerous
module|loadex admin slow dangerous
module|unload admin slow dangerous
monitor admin slow dangerous
move keyspace write fast
psync admin slow dangerous
replconf admin slow dangerous
replicaof admin slow dangerous
restore-asking keyspace write slow dangerous
role admin fast dangerous
script|debug slow scripting
slaveof admin slow dangerous
slowlog slow
slowlog|get admin slow dangerous
slowlog|help slow
slowlog|len admin slow dangerous
slowlog|reset admin slow dangerous
swapdb keyspace write fast dangerous
sync admin slow dangerous";
