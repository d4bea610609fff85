// Runs one statement a line with pgx, so that tests see how this driver sends its parameters.
//
// A line is {"mode", "sql", "args"}; an argument is a string, a number, or {"bytes": "hex"}. The answer is {} or
// {"error", "hint", "code"}.
package main

import (
	"bufio"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

var modes = map[string]pgx.QueryExecMode{
	"cache_statement": pgx.QueryExecModeCacheStatement,
	"cache_describe":  pgx.QueryExecModeCacheDescribe,
	"describe_exec":   pgx.QueryExecModeDescribeExec,
	"exec":            pgx.QueryExecModeExec,
	"simple_protocol": pgx.QueryExecModeSimpleProtocol,
}

type request struct {
	Mode string `json:"mode"`
	SQL  string `json:"sql"`
	Args []any  `json:"args"`
}

func argument(value any) any {
	switch sent := value.(type) {
	case map[string]any:
		decoded, err := hex.DecodeString(sent["bytes"].(string))
		if err != nil {
			panic(err)
		}
		return decoded
	case float64:
		return int32(sent)
	}
	return value
}

func run(connection *pgx.Conn, asked request) map[string]string {
	arguments := []any{modes[asked.Mode]}
	for _, value := range asked.Args {
		arguments = append(arguments, argument(value))
	}
	rows, err := connection.Query(context.Background(), asked.SQL, arguments...)
	if err == nil {
		rows.Close()
		err = rows.Err()
	}
	if err == nil {
		return map[string]string{}
	}
	answer := map[string]string{"error": err.Error()}
	var refused *pgconn.PgError
	if errors.As(err, &refused) {
		answer["hint"], answer["code"] = refused.Hint, refused.Code
	}
	return answer
}

func main() {
	connection, err := pgx.Connect(context.Background(), os.Args[1])
	if err != nil {
		panic(err)
	}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var asked request
		if err := json.Unmarshal(lines.Bytes(), &asked); err != nil {
			panic(err)
		}
		answer, _ := json.Marshal(run(connection, asked))
		fmt.Println(string(answer))
	}
}
