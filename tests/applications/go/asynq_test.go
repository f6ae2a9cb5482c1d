// Asynq, unmodified: tasks with retries, delays, unique ids and a schedule (tests/applications/run tells where the servers are).
package applications

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
)

const (
	tasks    = 300
	patience = 150 * time.Second
)

var (
	ctx   = context.Background()
	ports = strings.Fields(os.Getenv("ORDO_PORTS"))
	fault = strings.Fields(os.Getenv("ORDO_FAULT"))
)

type payload struct{ N int }

func addresses() []string {
	var all []string
	for _, port := range ports {
		all = append(all, "127.0.0.1:"+port)
	}
	return all
}

func connect() asynq.RedisConnOpt {
	if len(ports) == 1 {
		return asynq.RedisClientOpt{Addr: addresses()[0]}
	}
	return asynq.RedisClusterClientOpt{Addrs: addresses(), MaxRedirects: 20}
}

// queueOfFirst names a queue whose slot is led by the node that will be killed.
func queueOfFirst(t *testing.T) string {
	if len(ports) == 1 {
		return "work"
	}
	first := redis.NewClient(&redis.Options{Addr: addresses()[0]})
	defer first.Close()
	for {
		ranges, err := first.ClusterSlots(ctx).Result()
		if err != nil {
			t.Fatal(err)
		}
		for n := range 100 {
			name := fmt.Sprint("work", n)
			slot := int(first.ClusterKeySlot(ctx, "asynq:{"+name+"}").Val())
			if slices.ContainsFunc(ranges, func(some redis.ClusterSlot) bool {
				return some.Nodes[0].Addr == addresses()[0] && some.Start <= slot && slot <= some.End
			}) {
				return name
			}
		}
	}
}

// again calls until there is an answer: while a node is away, its connections break.
func again(t *testing.T, call func() error) {
	t.Helper()
	for start := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		err := call()
		var broken *net.OpError
		switch {
		case err == nil:
			return
		case len(fault) == 0, time.Since(start) > patience:
			t.Fatal(err)
		case errors.As(err, &broken), strings.Contains(err.Error(), "EOF"), strings.Contains(err.Error(), "connection"):
		default:
			t.Fatal(err)
		}
	}
}

func TestEveryTaskIsDoneAndEveryResultIsRight(t *testing.T) {
	queue := queueOfFirst(t)
	var guard sync.Mutex
	executions := map[string]int{}
	count := func(name string) int {
		guard.Lock()
		defer guard.Unlock()
		executions[name]++
		return executions[name]
	}

	handlers := asynq.NewServeMux()
	handlers.HandleFunc("square", func(_ context.Context, task *asynq.Task) error {
		var given payload
		if err := json.Unmarshal(task.Payload(), &given); err != nil {
			return err
		}
		count(fmt.Sprint("square:", given.N))
		_, err := task.ResultWriter().Write([]byte(strconv.Itoa(given.N * given.N)))
		return err
	})
	handlers.HandleFunc("twice", func(_ context.Context, task *asynq.Task) error {
		if count("twice:"+string(task.Payload())) == 1 {
			return errors.New("the first time")
		}
		return nil
	})
	handlers.HandleFunc("fails", func(context.Context, *asynq.Task) error {
		return fmt.Errorf("as it should: %w", asynq.SkipRetry)
	})
	handlers.HandleFunc("tick", func(context.Context, *asynq.Task) error {
		count("tick")
		return nil
	})
	server := asynq.NewServer(connect(), asynq.Config{
		Concurrency: 10,
		Queues:      map[string]int{queue: 2, "other": 1},
		LogLevel:    asynq.FatalLevel,
		// A task is tried again soon, also when the node is away to which its end should have been told.
		RetryDelayFunc:           func(int, error, *asynq.Task) time.Duration { return 100 * time.Millisecond },
		DelayedTaskCheckInterval: 200 * time.Millisecond,
		TaskCheckInterval:        50 * time.Millisecond,
	})
	if err := server.Start(handlers); err != nil {
		t.Fatal(err)
	}
	defer server.Shutdown()
	schedule := asynq.NewScheduler(connect(), &asynq.SchedulerOpts{LogLevel: asynq.FatalLevel})
	if _, err := schedule.Register("@every 1s", asynq.NewTask("tick", nil), asynq.Queue(queue)); err != nil {
		t.Fatal(err)
	}
	if err := schedule.Start(); err != nil {
		t.Fatal(err)
	}
	defer schedule.Shutdown()

	client := asynq.NewClient(connect())
	defer client.Close()
	// A task has an id of its own, so that adding it again after a connection broke changes nothing.
	add := func(kind string, n int, options ...asynq.Option) string {
		id := fmt.Sprintf("%s-%d", kind, n)
		body, _ := json.Marshal(payload{n})
		options = append([]asynq.Option{asynq.Queue(queue), asynq.TaskID(id), asynq.Retention(time.Hour), asynq.MaxRetry(25)}, options...)
		again(t, func() error {
			_, err := client.Enqueue(asynq.NewTask(kind, body), options...)
			if errors.Is(err, asynq.ErrTaskIDConflict) && len(fault) > 0 {
				return nil
			}
			return err
		})
		return id
	}
	inspector := asynq.NewInspector(connect())
	defer inspector.Close()
	// wait gives the task once it is in the state.
	wait := func(queue, id string, state asynq.TaskState) *asynq.TaskInfo {
		for start := time.Now(); ; time.Sleep(10 * time.Millisecond) {
			var info *asynq.TaskInfo
			again(t, func() (err error) {
				info, err = inspector.GetTaskInfo(queue, id)
				return err
			})
			if info.State == state {
				return info
			}
			if time.Since(start) > patience {
				t.Fatalf("%s is %v: %s", id, info.State, info.LastErr)
			}
		}
	}

	for n := range tasks / 2 {
		add("square", n)
	}
	wait(queue, "square-0", asynq.TaskStateCompleted)
	back := make(chan error, 1)
	if len(fault) > 0 {
		command := exec.Command(fault[0], fault[1:]...)
		command.Stdout, command.Stderr = os.Stdout, os.Stderr
		go func() { back <- command.Run() }()
	} else {
		back <- nil
	}
	for n := tasks / 2; n < tasks; n++ {
		add("square", n)
	}
	for n := 1000; n < 1020; n++ {
		add("square", n, asynq.ProcessIn(time.Second))
	}
	for n := range 20 {
		add("twice", n)
	}
	for n := 2000; n < 2020; n++ {
		add("square", n, asynq.Queue("other"))
	}
	failing := add("fails", 0)
	_, err := client.Enqueue(asynq.NewTask("square", []byte(`{"N":0}`)), asynq.Queue(queue), asynq.TaskID("square-0"))
	for len(fault) > 0 && err != nil && !errors.Is(err, asynq.ErrTaskIDConflict) {
		_, err = client.Enqueue(asynq.NewTask("square", []byte(`{"N":0}`)), asynq.Queue(queue), asynq.TaskID("square-0"))
	}
	if !errors.Is(err, asynq.ErrTaskIDConflict) {
		t.Fatal("an id was taken twice: ", err)
	}

	repeated, all := 0, 0
	check := func(queue string, from, to int) {
		for n := from; n < to; n++ {
			info := wait(queue, fmt.Sprintf("square-%d", n), asynq.TaskStateCompleted)
			if string(info.Result) != strconv.Itoa(n*n) {
				t.Fatalf("the square of %d is %q", n, info.Result)
			}
			guard.Lock()
			times := executions[fmt.Sprint("square:", n)]
			guard.Unlock()
			if times == 0 || times > 1 && len(fault) == 0 {
				t.Fatalf("square-%d was done %d times", n, times)
			}
			all++
			repeated += times - 1
		}
	}
	check(queue, 0, tasks)
	check(queue, 1000, 1020)
	check("other", 2000, 2020)
	for n := range 20 {
		info := wait(queue, fmt.Sprintf("twice-%d", n), asynq.TaskStateCompleted)
		if info.Retried != 1 && len(fault) == 0 {
			t.Fatalf("tried again %d times", info.Retried)
		}
	}
	if info := wait(queue, failing, asynq.TaskStateArchived); !strings.Contains(info.LastErr, "as it should") {
		t.Fatal(info.LastErr)
	}
	for start := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		guard.Lock()
		ticks := executions["tick"]
		guard.Unlock()
		if ticks >= 2 {
			break
		}
		if time.Since(start) > patience {
			t.Fatal("no ticks")
		}
	}
	if err := <-back; err != nil {
		t.Fatal("the node is not back: ", err)
	}
	if len(fault) > 0 {
		fmt.Printf("asynq: %d tasks, %d of them repeated\n", all, repeated)
	}
}
