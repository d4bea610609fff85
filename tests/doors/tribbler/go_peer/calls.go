package main

import (
	"encoding/gob"
	"fmt"
	"net/rpc"
	"slices"
	"strings"
	"time"
)

// storage goes through all methods and statuses of the key-value store, each call on the next connection.
func storage(connections []*rpc.Client) {
	at := 0
	next := func() *rpc.Client { at++; return connections[at%len(connections)] }
	for n := range connections {
		key := fmt.Sprintf("user%d:key", n)
		expect("a key that is not there", get(next(), key, "").Status, keyNotFound)
		for _, value := range []string{"v", "", strings.Repeat("x", 1<<20), "tri\u00dfbler \U0001f426"} {
			expect("Put", status(next(), "StorageRPC.Put", PutArgs{key, value}), ok)
			expect("what was put", get(next(), key, ""), GetReply{Value: value})
		}
		expect("Put of a key too long", status(next(), "StorageRPC.Put", PutArgs{strings.Repeat("k", 2000), ""}), putFailed)

		list := fmt.Sprintf("user%d:list", n)
		expect("a list that is not there", getList(next(), list, "").Status, keyNotFound)
		for _, item := range []string{"a", "", "c"} {
			expect("AppendToList", status(next(), "StorageRPC.AppendToList", PutArgs{list, item}), ok)
			expect("AppendToList again", status(next(), "StorageRPC.AppendToList", &PutArgs{list, item}), itemExists)
		}
		reply := getList(next(), list, "")
		expect("GetList", reply.Status, ok)
		expect("the list", strings.Join(reply.Value, ","), "a,,c")
		for _, item := range []string{"", "c", "a"} {
			expect("RemoveFromList", status(next(), "StorageRPC.RemoveFromList", PutArgs{list, item}), ok)
			expect("RemoveFromList again", status(next(), "StorageRPC.RemoveFromList", PutArgs{list, item}), itemNotFound)
		}
		reply = getList(next(), list, "")
		expect("GetList of an empty list", reply.Status, ok)
		expect("the length of an empty list", len(reply.Value), 0)
	}
	// JSON cannot carry bytes that are no text; the first two ways of each node can.
	binary := "\xff\x00\xfe"
	expect("Put", status(connections[0], "StorageRPC.Put", PutArgs{binary, binary}), ok)
	expect("bytes that are no text", get(connections[1], binary, ""), GetReply{Value: binary})
}

// tribbles goes through the seven calls and their statuses, each on the next connection.
func tribbles(connections []*rpc.Client) {
	at := 0
	call := func(method string, args any) int {
		at++
		return status(connections[at%len(connections)], "Tribserver."+method, args)
	}
	read := func(method string, user string) GetTribblesReply {
		at++
		var reply GetTribblesReply
		must(connections[at%len(connections)].Call("Tribserver."+method, UserArgs{user}, &reply))
		return reply
	}
	subscriptions := func(user string) GetSubscriptionsReply {
		at++
		var reply GetSubscriptionsReply
		must(connections[at%len(connections)].Call("Tribserver.GetSubscriptions", UserArgs{user}, &reply))
		return reply
	}
	users := []string{"dga", "bryant", "gaga"}
	for _, user := range users {
		expect("posting as nobody", call("PostTribble", PostTribbleArgs{user, "?"}), noSuchUser)
		expect("nobody's tribbles", read("GetTribbles", user).Status, noSuchUser)
		expect("nobody's feed", read("GetTribblesBySubscription", user).Status, noSuchUser)
		expect("nobody's subscriptions", subscriptions(user).Status, noSuchUser)
		expect("CreateUser", call("CreateUser", UserArgs{user}), ok)
		expect("CreateUser again", call("CreateUser", &UserArgs{user}), exists)
	}
	for _, method := range []string{"AddSubscription", "RemoveSubscription"} {
		expect(method+" by nobody", call(method, SubscriptionArgs{"nobody", "dga"}), noSuchUser)
		expect(method+" of nobody", call(method, SubscriptionArgs{"dga", "nobody"}), noSuchTargetUser)
	}
	expect("the number of subscriptions", len(subscriptions("dga").Userids), 0)
	expect("the length of an empty feed", len(read("GetTribblesBySubscription", "dga").Tribbles), 0)
	for _, target := range users[1:] {
		expect("RemoveSubscription too early", call("RemoveSubscription", SubscriptionArgs{"dga", target}), noSuchTargetUser)
		expect("AddSubscription", call("AddSubscription", SubscriptionArgs{"dga", target}), ok)
		expect("AddSubscription again", call("AddSubscription", SubscriptionArgs{"dga", target}), exists)
	}
	expect("the subscriptions", strings.Join(subscriptions("dga").Userids, ","), "bryant,gaga")

	begin := time.Now().UnixNano()
	for n := range 110 {
		user := users[1+n%2]
		expect("PostTribble", call("PostTribble", PostTribbleArgs{user, fmt.Sprint(n)}), ok)
		expect("PostTribble", call("PostTribble", PostTribbleArgs{"dga", "nobody follows me"}), ok)
		// What was posted before is there, whoever is asked.
		expect("the newest tribble", read("GetTribblesBySubscription", "dga").Tribbles[0].Contents, fmt.Sprint(n))
	}
	feed := read("GetTribblesBySubscription", "dga").Tribbles
	expect("the length of the feed", len(feed), 100)
	last := time.Now().UnixNano() + 1
	for n, each := range feed {
		expect("the author", each.Userid, users[1+(109-n)%2])
		expect("the tribble", each.Contents, fmt.Sprint(109-n))
		expect("that times fall", each.Posted < last && each.Posted >= begin, true)
		last = each.Posted
	}
	expect("the number of tribbles", len(read("GetTribbles", "dga").Tribbles), 100)
	expect("the number of tribbles", len(read("GetTribbles", "gaga").Tribbles), 55)
	expect("RemoveSubscription", call("RemoveSubscription", SubscriptionArgs{"dga", "gaga"}), ok)
	expect("the length of the feed", len(read("GetTribblesBySubscription", "dga").Tribbles), 55)
}

// membership asks who is in the ring, as a node that registers again does.
func membership(client *rpc.Client, nodes []string) {
	var reply RegisterReply
	must(client.Call("StorageRPC.Register", RegisterArgs{Client{nodes[0], 1}}, &reply))
	expect("Ready", reply.Ready, true)
	expect("the number of nodes", len(reply.Clients), len(nodes))
	for _, each := range reply.Clients {
		expect("that the node is known", slices.Contains(nodes, each.HostPort), true)
	}
	if len(nodes) > 1 {
		expect("that the last id needs all its bits", reply.Clients[len(nodes)-1].NodeID > 1<<31, true)
	}
}

// StorageRPC is a service to compare with: what does Go's own server say?
type StorageRPC struct{}

func (StorageRPC) Get(args *GetArgs, reply *GetReply) error { return nil }

// mistakes compares the words of our nodes with those of Go's server.
func mistakes(connections []*rpc.Client) {
	genuine, err := rpc.DialHTTP("tcp", serve("StorageRPC", StorageRPC{}))
	must(err)
	for _, client := range connections {
		for _, method := range []string{
			"StorageRPC.Nope", "StorageRPC.get", "storagerpc.Get", "Nope.Get", "a.b.c", "StorageRPC.", ".Get", ".", "Get", "",
		} {
			found := client.Call(method, GetArgs{Key: "k"}, &GetReply{})
			wanted := genuine.Call(method, GetArgs{Key: "k"}, &GetReply{})
			expect("the error", fmt.Sprint(found), fmt.Sprint(wanted))
		}
		wrong := struct{ Key []string }{[]string{"k"}}
		expect("that wrong arguments are refused", client.Call("StorageRPC.Get", wrong, &GetReply{}) != nil, true)
		expect("a key that is not there", get(client, "none", "").Status, keyNotFound)
	}
}

// strangeArguments has fields that nobody knows, and lacks others; fields meet by their names.
func strangeArguments(node string) {
	client, err := rpc.DialHTTP("tcp", node)
	must(err)
	type Self struct {
		Inner []*Self
		Name  string
	}
	gob.Register(Self{})
	gob.Register(map[string]int{})
	strange := struct {
		LeaseClient LeaseClient
		Anything    any
		Table       map[string][]float64
		Key         string
		Self        *Self
		When        time.Time
		Many        [3]complex128
		More        any
	}{
		Anything: map[string]int{"a": 1},
		Table:    map[string][]float64{"pi": {3, 1, 4}},
		Key:      "strange",
		Self:     &Self{[]*Self{{nil, "x"}, {[]*Self{{nil, "y"}}, ""}}, "z"},
		When:     time.Now(),
		Many:     [3]complex128{1i, 2, 3i},
		More:     Self{nil, "w"},
	}
	expect("Put", status(client, "StorageRPC.Put", PutArgs{"strange", "v"}), ok)
	for range 3 {
		expect("a refusal", client.Call("StorageRPC.Nope", strange, &GetReply{}) != nil, true)
		var reply struct{ Value string }
		must(client.Call("StorageRPC.Get", strange, &reply))
		expect("the value", reply.Value, "v")
		reply.Value = ""
		must(client.Call("StorageRPC.Get", struct{ Key string }{"strange"}, &reply))
		expect("the value", reply.Value, "v")
	}
	must(client.Call("StorageRPC.Get", GetArgs{}, &GetReply{}))
}

// manyInFlight has thousands of calls open, on all connections together.
func manyInFlight(connections []*rpc.Client) {
	count := 3000 / len(connections)
	all := func(method string, args func(int) any, reply func(int) any) {
		done := make(chan *rpc.Call, count*len(connections))
		for n := range count {
			for _, client := range connections {
				client.Go(method, args(n), reply(n), done)
			}
		}
		for range cap(done) {
			must((<-done).Error)
		}
	}
	key := func(n int) string { return fmt.Sprintf("many%d:x", n) }
	all("StorageRPC.Put", func(n int) any { return PutArgs{key(n), key(n)} }, func(int) any { return &StatusReply{} })
	replies := make([]*GetReply, 0, count*len(connections))
	all("StorageRPC.Get", func(n int) any { return GetArgs{Key: key(n)} }, func(int) any {
		replies = append(replies, &GetReply{})
		return replies[len(replies)-1]
	})
	for n, reply := range replies {
		expect("the value", reply.Value, key(n/len(connections)))
	}
}
