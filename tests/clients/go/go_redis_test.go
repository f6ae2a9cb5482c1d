// go-redis, unmodified, against a running server: ORDO_PORT, ORDO_PORT_WITH_PASSWORD (the password is `secret`), and a cluster of
// three nodes at ORDO_CLUSTER_PORTS.
package clients

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

var ctx = context.Background()

// Who waits for longer has lost.
const patience = 30 * time.Second

func address(port string) string { return "127.0.0.1:" + port }

func connect(t *testing.T, protocol int, change ...func(*redis.Options)) *redis.Client {
	options := &redis.Options{Addr: address(os.Getenv("ORDO_PORT")), Protocol: protocol, MaxRetries: -1}
	for _, change := range change {
		change(options)
	}
	client := redis.NewClient(options)
	t.Cleanup(func() { client.Close() })
	return client
}

// same fails the test unless got is wanted and there is no error.
func same[T any](t *testing.T, got T, err error, wanted T) {
	t.Helper()
	if err != nil {
		t.Fatalf("%v, not %v", err, wanted)
	}
	if fmt.Sprintf("%#v", got) != fmt.Sprintf("%#v", wanted) {
		t.Fatalf("%#v, not %#v", got, wanted)
	}
}

// refused fails the test unless the error's text contains the words.
func refused(t *testing.T, err error, words string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), words) {
		t.Fatalf("%v, not an error of %q", err, words)
	}
}

// together runs the work so many times at once.
func together(t *testing.T, count int, work func(number int) error) {
	t.Helper()
	var group sync.WaitGroup
	failures := make(chan error, count)
	for number := range count {
		group.Add(1)
		go func() {
			defer group.Done()
			if err := work(number); err != nil {
				failures <- err
			}
		}()
	}
	group.Wait()
	close(failures)
	for failure := range failures {
		t.Fatal(failure)
	}
}

// inBoth runs the test in both protocols, with an empty database.
func inBoth(t *testing.T, test func(t *testing.T, protocol int, r *redis.Client)) {
	for _, protocol := range []int{2, 3} {
		t.Run(fmt.Sprintf("RESP%d", protocol), func(t *testing.T) {
			r := connect(t, protocol)
			same(t, r.FlushAll(ctx).Val(), nil, "OK")
			test(t, protocol, r)
		})
	}
}

func TestCommands(t *testing.T) {
	inBoth(t, func(t *testing.T, protocol int, r *redis.Client) {
		same(t, r.Set(ctx, "k", "v", time.Minute).Val(), nil, "OK")
		made, err := r.SetNX(ctx, "k", "w", 0).Result()
		same(t, made, err, false)
		if err := r.Get(ctx, "none").Err(); err != redis.Nil {
			t.Fatal(err)
		}
		number, err := r.IncrBy(ctx, "n", 7).Result()
		same(t, number, err, 7)
		number, err = r.HSet(ctx, "h", "f", "1", "g", "2").Result()
		same(t, number, err, 2)
		hash, err := r.HGetAll(ctx, "h").Result()
		same(t, hash, err, map[string]string{"f": "1", "g": "2"})
		values, err := r.MGet(ctx, "k", "none").Result()
		same(t, values, err, []any{"v", nil})
		number, err = r.ZAdd(ctx, "z", redis.Z{Score: 1.5, Member: "a"}, redis.Z{Score: 2, Member: "b"}).Result()
		same(t, number, err, 2)
		scores, err := r.ZRangeWithScores(ctx, "z", 0, -1).Result()
		same(t, scores, err, []redis.Z{{Score: 1.5, Member: "a"}, {Score: 2, Member: "b"}})
		number, err = r.RPush(ctx, "l", 1, 2, 3).Result()
		same(t, number, err, 3)
		list, err := r.LRange(ctx, "l", 0, -1).Result()
		same(t, list, err, []string{"1", "2", "3"})
		kind, err := r.Type(ctx, "z").Result()
		same(t, kind, err, "zset")
		places, err := r.GeoSearchLocation(ctx, "geo", &redis.GeoSearchLocationQuery{
			GeoSearchQuery: redis.GeoSearchQuery{Longitude: 15, Latitude: 37, Radius: 200, RadiusUnit: "km"}, WithDist: true}).Result()
		same(t, len(places), err, 0)
		info, err := r.InfoMap(ctx, "server").Result()
		same(t, info["Server"]["redis_version"], err, "7.2.0")
		commands, err := r.Command(ctx).Result()
		same(t, commands["get"].FirstKeyPos, err, 1)
		me, err := r.ClientInfo(ctx).Result()
		same(t, strings.HasPrefix(me.LibName, "go-redis"), err, true)
	})
}

func TestAPoolBoundsTheConnectionsOfMany(t *testing.T) {
	inBoth(t, func(t *testing.T, protocol int, _ *redis.Client) {
		pooled := connect(t, protocol, func(o *redis.Options) { o.PoolSize, o.ClientName, o.PoolTimeout = 4, "pooled", patience })
		together(t, 16, func(int) error {
			for range 100 {
				if err := pooled.Incr(ctx, "pooled").Err(); err != nil {
					return err
				}
			}
			return nil
		})
		sum, err := pooled.Get(ctx, "pooled").Int()
		same(t, sum, err, 1600)
		if lines := strings.Count(pooled.ClientList(ctx).Val(), " name=pooled "); lines < 1 || lines > 4 {
			t.Fatal(lines)
		}
	})
}

func TestPipelines(t *testing.T) {
	inBoth(t, func(t *testing.T, _ int, r *redis.Client) {
		replies, err := r.Pipelined(ctx, func(pipe redis.Pipeliner) error {
			for n := range 1000 {
				pipe.Set(ctx, fmt.Sprint("p", n), n, 0)
				pipe.Get(ctx, fmt.Sprint("p", n))
			}
			return nil
		})
		same(t, len(replies), err, 2000)
		for n := range 1000 {
			same(t, replies[2*n+1].(*redis.StringCmd).Val(), nil, strconv.Itoa(n))
		}
		replies, err = r.Pipelined(ctx, func(pipe redis.Pipeliner) error {
			pipe.Set(ctx, "s", "x", 0)
			pipe.Incr(ctx, "s")
			pipe.Get(ctx, "s")
			return nil
		})
		refused(t, err, "ERR value is not an integer or out of range")
		same(t, replies[2].(*redis.StringCmd).Val(), nil, "x")
	})
}

func increment(watch func(context.Context, func(*redis.Tx) error, ...string) error, key string, times int) error {
	for done := 0; done < times; {
		err := watch(ctx, func(tx *redis.Tx) error {
			value, err := tx.Get(ctx, key).Int()
			if err != nil {
				return err
			}
			_, err = tx.TxPipelined(ctx, func(pipe redis.Pipeliner) error { return pipe.Set(ctx, key, value+1, 0).Err() })
			return err
		}, key)
		switch {
		case err == nil:
			done++
		case !errors.Is(err, redis.TxFailedErr):
			return err
		}
	}
	return nil
}

func TestWatchRacesLoseNoIncrement(t *testing.T) {
	inBoth(t, func(t *testing.T, protocol int, r *redis.Client) {
		r.Set(ctx, "counter", 0, 0)
		together(t, 4, func(int) error { return increment(connect(t, protocol).Watch, "counter", 50) })
		sum, err := r.Get(ctx, "counter").Int()
		same(t, sum, err, 200)
		err = r.Watch(ctx, func(tx *redis.Tx) error {
			r.Set(ctx, "counter", "theirs", 0)
			_, err := tx.TxPipelined(ctx, func(pipe redis.Pipeliner) error { return pipe.Set(ctx, "counter", "mine", 0).Err() })
			return err
		}, "counter")
		if !errors.Is(err, redis.TxFailedErr) {
			t.Fatal(err)
		}
	})
}

func TestScriptsAndFunctions(t *testing.T) {
	inBoth(t, func(t *testing.T, _ int, r *redis.Client) {
		script := redis.NewScript("return redis.call('APPEND', KEYS[1], ARGV[1])")
		r.ScriptFlush(ctx)
		refused(t, script.EvalSha(ctx, r, []string{"text"}, "abc").Err(), "NOSCRIPT")
		// EVALSHA is answered NOSCRIPT, and EVAL follows.
		length, err := script.Run(ctx, r, []string{"text"}, "abc").Int()
		same(t, length, err, 3)
		length, err = script.EvalSha(ctx, r, []string{"text"}, "x").Int()
		same(t, length, err, 4)
		reply, err := r.Eval(ctx, "return {1, 'two', {3}, false}", nil).Slice()
		same(t, reply, err, []any{int64(1), "two", []any{int64(3)}, nil})
		r.FunctionFlush(ctx)
		library := "#!lua name=counters\n" +
			"redis.register_function('raise', function(k, a) return redis.call('INCRBY', k[1], a[1]) end)\n" +
			"redis.register_function{function_name='look', flags={'no-writes'}, callback=function(k) return redis.call('GET', k[1]) end}"
		name, err := r.FunctionLoad(ctx, library).Result()
		same(t, name, err, "counters")
		refused(t, r.FunctionLoad(ctx, library).Err(), "already exists")
		number, err := r.FCall(ctx, "raise", []string{"n"}, 5).Int()
		same(t, number, err, 5)
		text, err := r.FCallRo(ctx, "look", []string{"n"}).Text()
		same(t, text, err, "5")
		libraries, err := r.FunctionList(ctx, redis.FunctionListQuery{WithCode: true}).Result()
		same(t, len(libraries[0].Functions), err, 2)
		stats, err := r.FunctionStats(ctx).Result()
		same(t, stats.Engines[0].LibrariesCount, err, 1)
		dump, err := r.FunctionDump(ctx).Result()
		same(t, r.FunctionDelete(ctx, "counters").Val(), err, "OK")
		refused(t, r.FCall(ctx, "raise", []string{"n"}, 5).Err(), "Function not found")
		same(t, r.FunctionRestore(ctx, dump).Val(), nil, "OK")
		number, err = r.FCall(ctx, "raise", []string{"n"}, 5).Int()
		same(t, number, err, 10)
		r.FunctionFlush(ctx)
	})
}

func TestStreamsWithGroups(t *testing.T) {
	inBoth(t, func(t *testing.T, protocol int, r *redis.Client) {
		const entries = 300
		same(t, r.XGroupCreateMkStream(ctx, "events", "workers", "0").Val(), nil, "OK")
		refused(t, r.XGroupCreate(ctx, "events", "workers", "0").Err(), "BUSYGROUP")
		var guard sync.Mutex
		var seen []int
		count := func() int {
			guard.Lock()
			defer guard.Unlock()
			return len(seen)
		}
		together(t, 4, func(number int) error {
			own := connect(t, protocol)
			if number == 0 {
				for n := range entries {
					if err := own.XAdd(ctx, &redis.XAddArgs{Stream: "events", Values: []any{"number", n}}).Err(); err != nil {
						return err
					}
				}
				return nil
			}
			for count() < entries {
				read, err := own.XReadGroup(ctx, &redis.XReadGroupArgs{Group: "workers", Consumer: fmt.Sprint("c", number),
					Streams: []string{"events", ">"}, Count: 7, Block: 100 * time.Millisecond}).Result()
				if err != nil && err != redis.Nil {
					return err
				}
				for _, stream := range read {
					for _, message := range stream.Messages {
						n, err := strconv.Atoi(message.Values["number"].(string))
						if err != nil {
							return err
						}
						if taken, err := own.XAck(ctx, "events", "workers", message.ID).Result(); taken != 1 || err != nil {
							return fmt.Errorf("%d confirmed: %w", taken, err)
						}
						guard.Lock()
						seen = append(seen, n)
						guard.Unlock()
					}
				}
			}
			return nil
		})
		slices.Sort(seen)
		for n := range entries {
			same(t, seen[n], nil, n)
		}
		same(t, len(seen), nil, entries)
		r.XAdd(ctx, &redis.XAddArgs{Stream: "events", Values: []any{"number", "lost"}})
		r.XReadGroup(ctx, &redis.XReadGroupArgs{Group: "workers", Consumer: "dies", Streams: []string{"events", ">"}})
		pending, err := r.XPending(ctx, "events", "workers").Result()
		same(t, pending.Count, err, 1)
		claimed, _, err := r.XAutoClaim(ctx, &redis.XAutoClaimArgs{Stream: "events", Group: "workers", Consumer: "heir", Start: "0"}).Result()
		same(t, claimed[0].Values["number"].(string), err, "lost")
		full, err := r.XInfoStreamFull(ctx, "events", 1).Result()
		same(t, full.Groups[0].PelCount, err, 1)
		groups, err := r.XInfoGroups(ctx, "events").Result()
		same(t, groups[0].EntriesRead, err, entries+1)
		consumers, err := r.XInfoConsumers(ctx, "events", "workers").Result()
		same(t, len(consumers), err, 5)
	})
}

func TestWhoWaitsIsServedByOthers(t *testing.T) {
	inBoth(t, func(t *testing.T, protocol int, r *redis.Client) {
		together(t, 4, func(number int) error {
			own := connect(t, protocol)
			var got any
			var err error
			var wanted string
			switch number {
			case 0:
				got, err = own.BLPop(ctx, patience, "none", "left").Result()
				wanted = "[left a]"
			case 1:
				got, err = own.BLMove(ctx, "source", "target", "LEFT", "RIGHT", patience).Result()
				wanted = "b"
			case 2:
				_, got, err = own.BLMPop(ctx, patience, "LEFT", 5, "many").Result()
				wanted = "[c d]"
			case 3:
				for !strings.Contains(own.Info(ctx, "clients").Val(), "blocked_clients:3\r") {
				}
				own.RPush(ctx, "left", "a")
				own.RPush(ctx, "source", "b")
				own.RPush(ctx, "many", "c", "d")
				return nil
			}
			if err != nil || fmt.Sprint(got) != wanted {
				return fmt.Errorf("%v, %w, not %s", got, err, wanted)
			}
			return nil
		})
		if err := r.BZPopMin(ctx, time.Second, "none").Err(); err != redis.Nil {
			t.Fatal(err)
		}
	})
}

func TestMessagesToChannelsAndPatterns(t *testing.T) {
	inBoth(t, func(t *testing.T, _ int, r *redis.Client) {
		listener := r.Subscribe(ctx, "news", "sport")
		defer listener.Close()
		if err := listener.PSubscribe(ctx, "n*"); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			confirmed, err := listener.ReceiveTimeout(ctx, patience)
			if _, is := confirmed.(*redis.Subscription); !is {
				t.Fatal(confirmed, err)
			}
		}
		count, err := r.Publish(ctx, "news", "hello").Result()
		same(t, count, err, 2)
		count, err = r.Publish(ctx, "nothing", "else").Result()
		same(t, count, err, 1)
		messages := listener.Channel()
		for _, wanted := range [][3]string{{"", "news", "hello"}, {"n*", "news", "hello"}, {"n*", "nothing", "else"}} {
			message := <-messages
			same(t, [3]string{message.Pattern, message.Channel, message.Payload}, nil, wanted)
		}
		channels, err := r.PubSubChannels(ctx, "*").Result()
		slices.Sort(channels)
		same(t, channels, err, []string{"news", "sport"})
		patterns, err := r.PubSubNumPat(ctx).Result()
		same(t, patterns, err, 1)
	})
}

func TestWhatAClientKeepsIsCalledBack(t *testing.T) {
	keeping := connect(t, 3, func(o *redis.Options) {
		o.ClientSideCacheConfig = &redis.ClientSideCacheConfig{MaxEntries: 100}
	})
	writer := connect(t, 2)
	same(t, writer.Set(ctx, "kept", "old", 0).Val(), nil, "OK")
	for range 100 {
		value, err := keeping.Get(ctx, "kept").Result()
		same(t, value, err, "old")
	}
	if stats := keeping.CSCStats(); stats.Hits == 0 {
		t.Fatalf("nothing was kept: %+v", stats)
	}
	for n := range 20 {
		wanted := fmt.Sprint("new", n)
		same(t, writer.Set(ctx, "kept", wanted, 0).Val(), nil, "OK")
		for start := time.Now(); keeping.Get(ctx, "kept").Val() != wanted; {
			if time.Since(start) > patience {
				t.Fatal("an old value is kept")
			}
		}
	}
}

func TestIteratorsGiveAll(t *testing.T) {
	inBoth(t, func(t *testing.T, _ int, r *redis.Client) {
		const count = 700
		for n := range count {
			r.SAdd(ctx, "set", n)
		}
		_, err := r.Pipelined(ctx, func(pipe redis.Pipeliner) error {
			for n := range count {
				pipe.HSet(ctx, "hash", n, n)
				pipe.ZAdd(ctx, "sorted", redis.Z{Score: float64(n), Member: n})
				pipe.Set(ctx, fmt.Sprint("key:", n), n, 0)
			}
			return nil
		})
		same(t, true, err, true)
		for step, iterators := range [][]*redis.ScanIterator{
			{r.Scan(ctx, 0, "key:*", 17).Iterator(), r.SScan(ctx, "set", 0, "", 0).Iterator()},
			{r.HScan(ctx, "hash", 0, "", 0).Iterator(), r.ZScan(ctx, "sorted", 0, "", 0).Iterator()},
		} {
			for _, iterator := range iterators {
				found := map[string]bool{}
				for place := 0; iterator.Next(ctx); place++ {
					if place%(step+1) == 0 {
						found[iterator.Val()] = true
					}
				}
				same(t, len(found), iterator.Err(), count)
			}
		}
	})
}

func TestErrors(t *testing.T) {
	inBoth(t, func(t *testing.T, _ int, r *redis.Client) {
		r.Set(ctx, "k", "text", 0)
		refused(t, r.Incr(ctx, "k").Err(), "ERR value is not an integer or out of range")
		refused(t, r.LPush(ctx, "k", "x").Err(), "WRONGTYPE Operation against a key holding the wrong kind of value")
		refused(t, r.Do(ctx, "NOSUCHCOMMAND").Err(), "ERR unknown command 'NOSUCHCOMMAND'")
		refused(t, r.Do(ctx, "GET").Err(), "ERR wrong number of arguments for 'get' command")
		same(t, r.Get(ctx, "k").Val(), nil, "text")
	})
}

func TestAPasswordIsNeededAndEnough(t *testing.T) {
	for _, protocol := range []int{2, 3} {
		with := func(password string) *redis.Client {
			return connect(t, protocol, func(o *redis.Options) {
				o.Addr, o.Password = address(os.Getenv("ORDO_PORT_WITH_PASSWORD")), password
			})
		}
		refused(t, with("").Ping(ctx).Err(), "NOAUTH")
		refused(t, with("wrong").Ping(ctx).Err(), "WRONGPASS")
		same(t, with("secret").Ping(ctx).Val(), nil, "PONG")
	}
}

func TestAClientForClustersIsNeverSentElsewhere(t *testing.T) {
	ports := strings.Fields(os.Getenv("ORDO_CLUSTER_PORTS"))
	var addresses []string
	for _, port := range ports {
		addresses = append(addresses, address(port))
	}
	for _, protocol := range []int{2, 3} {
		t.Run(fmt.Sprintf("RESP%d", protocol), func(t *testing.T) {
			cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addresses[:1], Protocol: protocol})
			defer cluster.Close()
			one := connect(t, protocol, func(o *redis.Options) { o.Addr = addresses[1] })
			same(t, one.FlushAll(ctx).Val(), nil, "OK")
			var guard sync.Mutex
			var masters []string
			err := cluster.ForEachMaster(ctx, func(_ context.Context, master *redis.Client) error {
				guard.Lock()
				defer guard.Unlock()
				masters = append(masters, master.Options().Addr)
				return master.Ping(ctx).Err()
			})
			slices.Sort(masters)
			same(t, masters, err, addresses)
			together(t, 8, func(number int) error {
				for n := range 100 {
					if err := cluster.Set(ctx, fmt.Sprintf("k%d:%d", number, n), n, 0).Err(); err != nil {
						return err
					}
				}
				return nil
			})
			value, err := cluster.Get(ctx, "k3:77").Result()
			same(t, value, err, "77")
			// Any node has all keys, and any command takes all of them.
			size, err := one.DBSize(ctx).Result()
			same(t, size, err, 800)
			values, err := one.MGet(ctx, "k1:1", "k2:2", "k3:3").Result()
			same(t, values, err, []any{"1", "2", "3"})
			replies, err := cluster.Pipelined(ctx, func(pipe redis.Pipeliner) error {
				for n := range 100 {
					pipe.Incr(ctx, fmt.Sprint("p", n))
				}
				return nil
			})
			same(t, len(replies), err, 100)
			replies, err = cluster.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
				pipe.Incr(ctx, "{a}1")
				pipe.Incr(ctx, "{a}2")
				return nil
			})
			same(t, len(replies), err, 2)
			cluster.Set(ctx, "counter", 0, 0)
			together(t, 4, func(int) error { return increment(cluster.Watch, "counter", 20) })
			sum, err := cluster.Get(ctx, "counter").Int()
			same(t, sum, err, 80)
			sum, err = redis.NewScript("return redis.call('INCR', KEYS[1])").Run(ctx, cluster, []string{"counter"}).Int()
			same(t, sum, err, 81)
			for _, listener := range []*redis.PubSub{cluster.Subscribe(ctx, "news"), cluster.SSubscribe(ctx, "shard")} {
				if _, err := listener.ReceiveTimeout(ctx, patience); err != nil {
					t.Fatal(err)
				}
				one.Publish(ctx, "news", "hello")
				one.SPublish(ctx, "shard", "hello")
				message := <-listener.Channel()
				same(t, message.Payload, nil, "hello")
				listener.Close()
			}
			if errors := one.Info(ctx, "errorstats").Val(); strings.Contains(errors, "MOVED") || strings.Contains(errors, "CROSSSLOT") {
				t.Fatal(errors)
			}
		})
	}
}
